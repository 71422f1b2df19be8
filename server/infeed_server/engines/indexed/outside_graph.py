"""Samples that are made outside of the graph of batches: those that need no graph, and single ones
that a batch lacks."""

from __future__ import annotations

from typing import Any

from infeed.shared.spec import Array
from infeed_server.engines.indexed.fair_queue import BatchTask
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.native_pictures import Run
from infeed_server.pipeline.rows import select_rows
from infeed_server.pipeline.sample_graph import ColumnsFunction, columns_function
from infeed_server.sources.base import Columns

Rows = dict[str, Any]
"""`slot`, `index`, `key` and `columns` of each sample of a batch that the graph is to make."""


def make_early(
    plan: IndexedPlan, task: BatchTask, slots: Array, columns: Columns, run: Run, *, cut_off: bool
) -> Rows:
    """Puts the samples into a task that need no graph. Returns the rows of the others; only if
    `cut_off` with the pictures that end too early, which the graph would fail to make."""
    if plan.is_passthrough:
        task.put(slots, dict(columns))
        slots = slots[:0]
    elif plan.native is not None:
        made = plan.native.make(columns, task.key[slots], run, task.uncounted[slots])
        task.uncounted[slots] = False
        task.put(slots, made.fields, made.done)
        is_left = ~made.cut_off | cut_off
        slots, columns = slots[~made.done][is_left], select_rows(made.left, is_left)
    return {"slot": slots, "index": task.index[slots], "key": task.key[slots], "columns": columns}


def graph_function(plan: IndexedPlan) -> ColumnsFunction:
    """Returns the function that makes the same bits as the graph, without a trip through it, in
    which a batch would wait behind others."""
    made = plan.native or plan
    return columns_function((plan.native or plan.source).columns, made.sample_function())
