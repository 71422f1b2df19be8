"""Tests of the local backend: elements that are no batch, and datasets that draw at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed_server.pipeline.load import parse
from infeed_service.sequential.local_backend import LocalBackend
from infeed_service.sequential.plan import plan_sequential
from infeed_service.sequential.window import ReadKey


def growing() -> tf.data.Dataset:
    def rows() -> Iterator[np.ndarray[Any, Any]]:
        yield np.zeros(4)
        yield np.zeros(6)

    return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([None], tf.float32))


def lopsided() -> tf.data.Dataset:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"x": np.zeros(4), "label": np.zeros(4)}
        yield {"x": np.zeros(4), "label": np.zeros(3)}

    vector = tf.TensorSpec([None], tf.float32)
    signature = {"x": vector, "label": vector}
    return tf.data.Dataset.from_generator(rows, output_signature=signature)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (growing, "growing: element 1 of epoch 0 is not a batch of at most 4 .*'features' has 6"),
        (lopsided, "lopsided: element 1 of .*: 'x' has 4 rows, 'label' has 3 rows"),
    ],
)
def test_element_unlike_the_first_batch_is_an_error(
    serve: Any, make: Callable[[], tf.data.Dataset], message: str
) -> None:
    server = serve({"n": parse({"source": {"dataset": make}})})
    with infeed.connect(str(server.address), "n", epochs=1) as feed:
        assert feed.next(60).mask.all()
        with pytest.raises(infeed.SourceError, match=message):
            feed.next(60)


def test_fault_of_storage_is_no_error_of_the_function() -> None:
    dataset = tf.data.Dataset.from_tensors(0)
    definition = parse({"source": {"dataset": lambda: dataset}, "batch": {"size": 1}})
    source = plan_sequential("n", definition).source
    text = "{{function_node __wrapped__Get}} /a.txt; No such file or directory [Op:It] name:"
    away = source.explain(tf.errors.NotFoundError(None, None, text), "n")
    assert type(away) is infeed.SourceError
    assert away.message.endswith(" failed: /a.txt; No such file or directory")
    invalid = tf.errors.InvalidArgumentError(None, None, "not a number")
    assert type(source.explain(invalid, "n")) is infeed.UserCodeError


def random_numbers() -> tf.data.Dataset:
    """Other numbers in each read, from Python, which TensorFlow cannot detect."""

    def rows() -> Iterator[int]:
        yield from np.random.default_rng().integers(0, 1 << 60, 100)

    return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))


@pytest.mark.parametrize("declared", [None, True, False])
def test_random_dataset_is_detected_unless_declared(declared: bool | None) -> None:
    source = {"dataset": random_numbers}
    if declared is not None:
        source = {**source, "deterministic": declared}
    definition = parse({"source": source, "batch": {"size": 4}})
    backend = LocalBackend(plan_sequential("n", definition))

    def read_first(key: ReadKey) -> None:
        elements = backend.read(key)
        next(elements)
        elements.close()

    read_first(ReadKey(0, 4, 1))
    read_first(ReadKey(1, 4, 1))  # another seed may begin otherwise
    for _ in range(2):
        if declared is None:
            with pytest.raises(infeed.SourceError, match="a second read began with other elem"):
                read_first(ReadKey(0, 4, 1))
        else:
            read_first(ReadKey(0, 4, 1))
