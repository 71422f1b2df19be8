"""Datasets of a Python function: elements, end and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from infeed.shared.tensorflow.from_callable import from_callable  # noqa: E402 - it needs TensorFlow

SIGNATURE = {
    "row": {"path": tf.TensorSpec([2], tf.string), "x": tf.TensorSpec([2, 1], tf.int64)},
    "index": tf.TensorSpec([2], tf.int64),
}


def element(number: int) -> dict[str, Any]:
    index = np.array([number, number + 1])
    path = np.array([b"a", b"\xff"], object)
    return {"index": index, "row": {"path": path, "x": index[:, np.newaxis]}}


def function_of(elements: Iterable[Any]) -> Callable[[int], Any]:
    iterator = iter(elements)
    return lambda _: next(iterator, None)


def test_elements_keep_their_order_and_structure() -> None:
    dataset = from_callable(function_of(map(element, range(3))), SIGNATURE)
    assert dataset.element_spec == SIGNATURE
    for number, actual in enumerate(dataset.as_numpy_iterator()):
        expected = element(number)
        np.testing.assert_array_equal(actual["index"], expected["index"])
        np.testing.assert_array_equal(actual["row"]["path"], expected["row"]["path"])
        np.testing.assert_array_equal(actual["row"]["x"], expected["row"]["x"])
    assert number == 2


def test_an_error_is_raised_and_ends_the_dataset() -> None:
    def elements() -> Iterator[dict[str, Any]]:
        yield element(0)
        raise LookupError("no more of these")

    batches = iter(from_callable(function_of(elements()), SIGNATURE))
    next(batches)
    with pytest.raises(tf.errors.OpError, match="no more of these"):
        next(batches)
    assert next(batches, None) is None


def test_the_graph_has_no_generator_dataset() -> None:
    """TensorFlow's generator datasets configure the C allocator; see `from_callable`."""
    graph = tf.data.Dataset._as_serialized_graph(from_callable(function_of(()), SIGNATURE))
    nodes = {node.op for node in tf.compat.v1.GraphDef.FromString(graph.numpy()).node}
    assert nodes
    assert "GeneratorDataset" not in nodes
