"""Tests of the background iterator: its elements, errors, checks and end."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.waiting import wait_until

from infeed.shared.errors import ServerUnavailableError
from infeed_tfdata.gateway.background_iterator import BackgroundIterator


def failing() -> tf.data.Dataset:
    return tf.data.Dataset.range(3).map(lambda i: tf.debugging.check_numerics(1 / (1 - i), "x"))


def no_check(seconds: float) -> None:
    pass


def test_background_iterator_yields_the_dataset() -> None:
    with closing(BackgroundIterator(tf.data.Dataset.range(5), no_check, "ahead")) as elements:
        assert [int(element) for element in elements] == [0, 1, 2, 3, 4]
        assert list(elements) == []


def test_background_iterator_ends_with_the_datasets_error() -> None:
    with closing(BackgroundIterator(failing(), no_check, "ahead")) as elements:
        assert float(next(elements)) == 1.0
        with pytest.raises(tf.errors.InvalidArgumentError):
            next(elements)
        assert list(elements) == []


def test_check_ends_the_wait_for_an_element() -> None:
    released = threading.Event()

    def wait() -> Any:
        released.wait(120)
        return 1

    dataset = tf.data.Dataset.range(1).map(lambda _: tf.py_function(wait, [], tf.int64))

    waits: list[float] = []

    def check(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise ServerUnavailableError("gone")

    with (
        closing(BackgroundIterator(dataset, check, "ahead-stuck")) as elements,
        pytest.raises(ServerUnavailableError, match="gone"),
    ):
        next(elements)
    assert 0 < waits[0] < waits[1]
    released.set()


def test_background_thread_ends_on_close() -> None:
    elements = BackgroundIterator(tf.data.Dataset.range(1 << 40), no_check, "ahead-closed")
    next(elements)

    def is_alive() -> bool:
        return any(thread.name == "ahead-closed" for thread in threading.enumerate())

    assert is_alive()
    elements.close()
    wait_until(lambda: not is_alive(), "the thread ends")
