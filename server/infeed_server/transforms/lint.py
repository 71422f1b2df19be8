"""Finding randomness that does not come from the sample's key."""

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


def stateful_random_ops(concrete_function: Any) -> list[str]:
    """The operations of a traced function that draw from a state, sorted: `node (RandomUniform)`.

    Looks into branches and nested functions too.
    """
    return sorted(random_nodes(concrete_function.graph))


def random_nodes(graph: tf.Graph) -> set[str]:
    """The same for a graph that may still be growing."""
    definition = graph.as_graph_def()
    found = set(_among("", definition.node))
    for function in definition.library.function:
        found.update(_among(f"{function.signature.name}/", function.node_def))
    return found


def _among(prefix: str, nodes: Iterable[Any]) -> Iterator[str]:
    return (f"{prefix}{node.name} ({node.op})" for node in nodes if node.op in _STATEFUL)
