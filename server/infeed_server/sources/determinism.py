"""Whether two runs of a tf.data.Dataset give the same elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_RANDOM_OPS = frozenset(
    {
        "AllCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomCrop",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "RngReadAndSkip",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "StatefulRandomBinomial",
        "StatefulStandardNormal",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatefulUniformFullInt",
        "StatefulUniformInt",
        "ThreadUnsafeUnigramCandidateSampler",
        "Timestamp",
        "TruncatedNormal",
        "UniformCandidateSampler",
    }
)
"""Ops that draw from a state of their own, in the order that threads come by; or from the clock."""


def is_deterministic(dataset: tf.data.Dataset) -> bool:
    """False when the dataset may reorder its elements, or draws random numbers from a state, or
    comes from TensorFlow's data service, whose workers give elements as they have them.

    A Python function (`py_function`, `from_generator`) cannot be looked into and counts as
    deterministic; so do `shuffle` and the stateless random ops, which follow the seed.
    """
    if dataset.options().deterministic is False:
        return False
    return not any(_reorders(stage) or _draws(stage) for stage in stages(dataset))


def stages(dataset: tf.data.Dataset) -> Iterator[Any]:
    """The dataset and all that it is made from.

    These are TensorFlow's own underscored methods: the public way, serialising the graph, would
    copy every array that the dataset holds.
    """
    pending = [dataset]
    while pending:
        stage = pending.pop()
        yield stage
        pending += stage._inputs()


def _reorders(stage: Any) -> bool:
    if type(stage).__name__.startswith("_DataServiceDataset"):
        return True
    return getattr(stage, "_deterministic", None) == "false"


def _draws(stage: Any) -> bool:
    for function in stage._functions():
        graph = function.function.graph.as_graph_def()
        if _any_unsteady(graph.node):
            return True
        if any(_any_unsteady(inner.node_def) for inner in graph.library.function):
            return True
    return False


def _any_unsteady(nodes: Iterable[Any]) -> bool:
    return any(
        node.op in _RANDOM_OPS
        or (node.op.endswith(("Dataset", "DatasetV2", "DatasetV3", "DatasetV4"))
            and node.attr["deterministic"].s == b"false")
        for node in nodes
    )  # fmt: skip
