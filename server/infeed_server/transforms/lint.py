"""Finding what a traced function must not do: draw from a state, or call Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_STATEFUL = frozenset(
    {
        "RandomUniform",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "ParameterizedTruncatedNormal",
        "RandomShuffle",
        "RandomGamma",
        "RandomGammaGrad",
        "RandomPoisson",
        "RandomPoissonV2",
        "Multinomial",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "RandomCrop",
        "StatefulUniform",
        "StatefulUniformInt",
        "StatefulUniformFullInt",
        "StatefulStandardNormal",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulRandomBinomial",
        "RngSkip",
        "RngReadAndSkip",
        "NonDeterministicInts",
        "AllCandidateSampler",
        "UniformCandidateSampler",
        "LogUniformCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler",
    }
)

_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def stateful_random_ops(concrete_function: Any) -> list[str]:
    """The operations of a traced function that draw from a state, sorted: `node (RandomUniform)`.

    Looks into branches and nested functions too.
    """
    return sorted(random_nodes(concrete_function.graph))


def random_nodes(graph: tf.Graph) -> set[str]:
    """The same for a graph that may still be growing."""
    return _among(graph, _STATEFUL)


def python_nodes(graph: tf.Graph) -> set[str]:
    """The operations that call Python functions: `tf.py_function`, `tf.numpy_function`."""
    return _among(graph, _PYTHON)


def _among(graph: tf.Graph, ops: frozenset[str]) -> set[str]:
    """`node (op)` of those that a graph holds, in branches and nested functions too."""
    definition = graph.as_graph_def()
    found = set(_named("", definition.node, ops))
    for function in definition.library.function:
        found.update(_named(f"{function.signature.name}/", function.node_def, ops))
    return found


def _named(prefix: str, nodes: Iterable[Any], ops: frozenset[str]) -> Iterator[str]:
    return (f"{prefix}{node.name} ({node.op})" for node in nodes if node.op in ops)
