"""Static analysis of datasets: differences between two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from infeed_server.transforms.graph_nodes import STATEFUL_RANDOM_OPS, iter_nodes

_NONDETERMINISTIC_OPS = STATEFUL_RANDOM_OPS | {"Timestamp"}


def is_deterministic(dataset: tf.data.Dataset) -> bool:
    """Returns whether two runs of the dataset give equal elements in the same order. Python
    functions (`py_function`, `from_generator`) count as deterministic."""
    if dataset.options().deterministic is False:
        return False
    return not any(_reorders(stage) or _draws_from_state(stage) for stage in iter_stages(dataset))


def iter_stages(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields the dataset and all its inputs, transitively. It uses private methods, because the
    public way, serialising the graph, would copy every array."""
    pending = [dataset]
    while pending:
        stage = pending.pop()
        yield stage
        pending += stage._inputs()


def _reorders(stage: Any) -> bool:
    if type(stage).__name__.startswith("_DataServiceDataset"):
        return True
    return getattr(stage, "_deterministic", None) == "false"


def _draws_from_state(stage: Any) -> bool:
    graphs = (function.function.graph for function in stage._functions())
    return any(_is_nondeterministic(node) for graph in graphs for _, node in iter_nodes(graph))


def _is_nondeterministic(node: Any) -> bool:
    if node.op in _NONDETERMINISTIC_OPS:
        return True
    is_dataset = node.op.endswith(("Dataset", "DatasetV2", "DatasetV3", "DatasetV4"))
    return is_dataset and bool(node.attr["deterministic"].s == b"false")
