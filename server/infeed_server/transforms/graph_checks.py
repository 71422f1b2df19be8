"""Searches of a traced graph for ops with random state and for calls of Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from infeed_server.sources.dataset.determinism import STATEFUL_RANDOM_OPS

_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def random_nodes(graph: tf.Graph) -> set[str]:
    """Returns the nodes that draw from random state, as `node (op)`. The graph may still grow."""
    return _find_nodes(graph, STATEFUL_RANDOM_OPS)


def python_nodes(graph: tf.Graph) -> set[str]:
    """Returns the nodes that call Python functions, as `node (op)`: `tf.py_function` and others."""
    return _find_nodes(graph, _PYTHON_OPS)


def _find_nodes(graph: tf.Graph, ops: frozenset[str]) -> set[str]:
    """Returns `node (op)` for each node with one of the ops, in branches and functions too."""
    definition = graph.as_graph_def()
    found = set(_describe("", definition.node, ops))
    for function in definition.library.function:
        found.update(_describe(f"{function.signature.name}/", function.node_def, ops))
    return found


def _describe(prefix: str, nodes: Iterable[Any], ops: frozenset[str]) -> Iterator[str]:
    return (f"{prefix}{node.name} ({node.op})" for node in nodes if node.op in ops)
