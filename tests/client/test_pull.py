"""A Python function as a dataset: its elements, its end, its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from infeed.pull import pull  # noqa: E402 - it needs TensorFlow

SIGNATURE = {
    "row": {"path": tf.TensorSpec([2], tf.string), "x": tf.TensorSpec([2, 1], tf.int64)},
    "index": tf.TensorSpec([2], tf.int64),
}


def element(number: int) -> dict[str, Any]:
    index = np.array([number, number + 1])
    path = np.array([b"a", b"\xff"], object)
    return {"index": index, "row": {"path": path, "x": index[:, np.newaxis]}}


def taking(elements: Iterable[Any]) -> Callable[[int], Any]:
    rest = iter(elements)
    return lambda _: next(rest, None)


def test_elements_come_in_order_and_structure() -> None:
    dataset = pull(taking(map(element, range(3))), SIGNATURE)
    assert dataset.element_spec == SIGNATURE
    for number, got in enumerate(dataset.as_numpy_iterator()):
        expected = element(number)
        np.testing.assert_array_equal(got["index"], expected["index"])
        np.testing.assert_array_equal(got["row"]["path"], expected["row"]["path"])
        np.testing.assert_array_equal(got["row"]["x"], expected["row"]["x"])
    assert number == 2


def test_each_iteration_counts_anew() -> None:
    dataset = pull(lambda number: element(number) if number < 2 else None, SIGNATURE)
    for _ in range(2):
        assert [got["index"][0] for got in dataset.as_numpy_iterator()] == [0, 1]


def test_no_elements() -> None:
    assert not list(pull(taking(()), SIGNATURE))


def test_an_element_of_another_shape_fails() -> None:
    wrong = {**element(0), "index": np.zeros(3, np.int64)}
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iter(pull(taking([wrong]), SIGNATURE)))


def test_an_error_passes_and_then_it_ends() -> None:
    def elements() -> Iterator[dict[str, Any]]:
        yield element(0)
        raise LookupError("no more of these")

    batches = iter(pull(taking(elements()), SIGNATURE))
    next(batches)
    with pytest.raises(tf.errors.OpError, match="no more of these"):
        next(batches)
    assert next(batches, None) is None


def test_the_allocator_is_left_alone() -> None:
    """TensorFlow's generator datasets set the C allocator; see `pull`."""
    graph = tf.data.Dataset._as_serialized_graph(pull(taking(()), SIGNATURE))
    nodes = {node.op for node in tf.compat.v1.GraphDef.FromString(graph.numpy()).node}
    assert nodes
    assert "GeneratorDataset" not in nodes
