"""Static analysis of a tf.data.Dataset: whether two runs give the same elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

STATEFUL_RANDOM_OPS = frozenset({
    "AllCandidateSampler", "FixedUnigramCandidateSampler", "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler", "Multinomial", "NonDeterministicInts",
    "ParameterizedTruncatedNormal", "RandomCrop", "RandomGamma", "RandomGammaGrad",
    "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomStandardNormal", "RandomUniform",
    "RandomUniformInt", "RngReadAndSkip", "RngSkip", "SampleDistortedBoundingBox",
    "SampleDistortedBoundingBoxV2", "StatefulRandomBinomial", "StatefulStandardNormal",
    "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform",
    "StatefulUniformFullInt", "StatefulUniformInt", "ThreadUnsafeUnigramCandidateSampler",
    "TruncatedNormal", "UniformCandidateSampler",
})  # fmt: skip
"""Ops that draw random numbers from shared state, so the results depend on thread order."""

_NONDETERMINISTIC_OPS = STATEFUL_RANDOM_OPS | {"Timestamp"}


def is_deterministic(dataset: tf.data.Dataset) -> bool:
    """Returns whether two runs of the dataset give the same elements in the same order.

    False for a dataset that may reorder its elements, that draws random numbers from state, or
    that reads from TensorFlow's data service, whose workers deliver in any order. Python functions
    (`py_function`, `from_generator`) cannot be analysed and count as deterministic; so do
    `shuffle` and the stateless random ops, which follow the seed.
    """
    if dataset.options().deterministic is False:
        return False
    return not any(_reorders(stage) or _draws_from_state(stage) for stage in iter_stages(dataset))


def iter_stages(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields the dataset and all its inputs, transitively.

    The methods are private to TensorFlow: the public alternative, serialising the graph, would
    copy every array in the dataset.
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


def _draws_from_state(stage: Any) -> bool:
    for function in stage._functions():
        graph = function.function.graph.as_graph_def()
        if _any_nondeterministic(graph.node):
            return True
        if any(_any_nondeterministic(inner.node_def) for inner in graph.library.function):
            return True
    return False


def _any_nondeterministic(nodes: Iterable[Any]) -> bool:
    return any(
        node.op in _NONDETERMINISTIC_OPS
        or (node.op.endswith(("Dataset", "DatasetV2", "DatasetV3", "DatasetV4"))
            and node.attr["deterministic"].s == b"false")
        for node in nodes
    )  # fmt: skip
