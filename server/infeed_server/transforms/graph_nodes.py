"""Nodes of TensorFlow graphs that draw from random state."""

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


def random_nodes(graph: tf.Graph) -> set[str]:
    """Returns the nodes that draw from random state, as `node (op)`. The graph may still grow."""
    return find_nodes(graph, STATEFUL_RANDOM_OPS)


def find_nodes(graph: tf.Graph, ops: frozenset[str]) -> set[str]:
    """Returns the nodes of these ops, as `node (op)`."""
    return {
        f"{prefix}{node.name} ({node.op})" for prefix, node in iter_nodes(graph) if node.op in ops
    }


def iter_nodes(graph: tf.Graph) -> Iterator[tuple[str, Any]]:
    """Yields the nodes of a graph, and those in its branches and functions, with their prefix."""
    definition = graph.as_graph_def()
    for node in definition.node:
        yield "", node
    for function in definition.library.function:
        for node in function.node_def:
            yield f"{function.signature.name}/", node
