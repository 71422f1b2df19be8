"""Static analysis of datasets and graphs: what is not the same in two runs, and calls of Python."""

from __future__ import annotations

from collections.abc import Iterator
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

_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def is_deterministic(dataset: tf.data.Dataset) -> bool:
    """Returns whether two runs of the dataset give the same elements in the same order. Python
    functions (`py_function`, `from_generator`) count as deterministic."""
    if dataset.options().deterministic is False:
        return False
    return not any(_reorders(stage) or _draws_from_state(stage) for stage in iter_stages(dataset))


def iter_stages(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields the dataset and all its inputs, transitively. The methods are private: the public way,
    serialising the graph, would copy every array."""
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
    return any(_is_nondeterministic(node) for graph in graphs for _, node in _iter_nodes(graph))


def _is_nondeterministic(node: Any) -> bool:
    if node.op in _NONDETERMINISTIC_OPS:
        return True
    is_dataset = node.op.endswith(("Dataset", "DatasetV2", "DatasetV3", "DatasetV4"))
    return is_dataset and bool(node.attr["deterministic"].s == b"false")


def random_nodes(graph: tf.Graph) -> set[str]:
    """Returns the nodes that draw from random state, as `node (op)`. The graph may still grow."""
    return _find_nodes(graph, STATEFUL_RANDOM_OPS)


def python_nodes(graph: tf.Graph) -> set[str]:
    """Returns the nodes that call Python functions, as `node (op)`: `tf.py_function` and others."""
    return _find_nodes(graph, _PYTHON_OPS)


def _find_nodes(graph: tf.Graph, ops: frozenset[str]) -> set[str]:
    return {
        f"{prefix}{node.name} ({node.op})" for prefix, node in _iter_nodes(graph) if node.op in ops
    }


def _iter_nodes(graph: tf.Graph) -> Iterator[tuple[str, Any]]:
    """Yields the nodes of a graph, and those in branches and functions after their prefix."""
    definition = graph.as_graph_def()
    for node in definition.node:
        yield "", node
    for function in definition.library.function:
        for node in function.node_def:
            yield f"{function.signature.name}/", node
