"""The tf.data graph of one batch size, from the columns of batches to the rows of their fields.

Each batch has its own `map` if its number of samples can vary: with the native decoder, which
leaves some to the graph, or with substitutes, since the graph then makes only the good ones. This
costs 10 to 20 µs of processor time per sample: little for a decoded photo, much for a cheap
transform. Samples that need no graph, and single ones that a batch lacks, are made outside the
graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from infeed.shared.spec import Array
from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.tf_data import graph_options, unbatched
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.native_pictures import Run
from infeed_server.pipeline.rows import select_rows
from infeed_server.pipeline.sample_graph import ColumnsFunction, columns_function
from infeed_server.sources.base import Columns

Rows = dict[str, Any]
"""`slot`, `index`, `key` and `columns` of each sample of a batch that the graph makes."""

_GRAPH_BATCHES = 2
"""Batches in the graph at a time: with one, processors idle while its last sample is made."""


def maps_each(plan: IndexedPlan) -> bool:
    """Returns whether each batch has its own `map`; it then has one row more than samples."""
    return _keeps_good(plan) or (plan.native is not None and plan.native.is_complete)


def batch_dataset(plan: IndexedPlan, slots: int, batches: Iterator[Rows]) -> tf.data.Dataset:
    """Returns the dataset of each batch's results in rows: slots, indices and fields."""
    sample_function = (plan.native or plan).sample_function()

    # `map` converts the user's functions itself; this package's need no AutoGraph.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def transform(row: Rows) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        return row["slot"], row["index"], sample_function(row["columns"], row["key"])

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def map_batch(batch: Rows) -> Any:
        rows = tf.data.Dataset.from_tensor_slices(batch)
        mapped = rows.map(transform, num_parallel_calls=tf.data.AUTOTUNE)
        mapped = mapped.ignore_errors() if _keeps_good(plan) else mapped
        # A last row, of zeros: a batch without a good sample is an element, too.
        end = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), mapped.element_spec)
        ended = mapped.concatenate(tf.data.Dataset.from_tensors(end))
        return ended.batch(slots + 1).get_single_element()

    signature = _signature((plan.native or plan.source).columns)
    read = from_callable(lambda _: next(batches, None), signature)
    if maps_each(plan):
        made = read.map(map_batch, num_parallel_calls=_GRAPH_BATCHES)
    else:
        mapped = unbatched(read).map(transform, num_parallel_calls=tf.data.AUTOTUNE)
        made = mapped.batch(slots, drop_remainder=True)
    return made.prefetch(2).with_options(graph_options())


def make_early(
    plan: IndexedPlan, task: BatchTask, slots: Array, columns: Columns, run: Run, *, cut_off: bool
) -> Rows:
    """Puts samples that need no graph into a task. Returns the rows of the others; without
    truncated pictures, which fail in the graph, unless `cut_off`."""
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
    """Returns the function that makes the same bits as the graph outside it, where a batch need not
    wait for others."""
    made = plan.native or plan
    return columns_function((plan.native or plan.source).columns, made.sample_function())


def _keeps_good(plan: IndexedPlan) -> bool:
    """Returns whether the good samples of a batch with a bad one are kept."""
    return plan.spec.on_error != "raise"


def _signature(columns: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Returns the tensor specs of a batch's rows."""
    return {
        "slot": tf.TensorSpec([None], tf.int64),
        "index": tf.TensorSpec([None], tf.int64),
        "key": tf.TensorSpec([None, 2], tf.int64),
        "columns": {
            name: tf.TensorSpec([None, *spec.shape], spec.dtype) for name, spec in columns.items()
        },
    }
