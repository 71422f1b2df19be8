"""Reading a dataset on a thread of its own."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import pytest
import tensorflow as tf

from infeed.errors import ServerUnavailableError
from infeed_server.engines.ahead import Ahead


def nothing() -> None:
    """There is nothing wrong."""


def alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_it_gives_what_the_dataset_does_and_ends_with_it() -> None:
    with closing(Ahead(tf.data.Dataset.range(5), nothing, "ahead")) as elements:
        assert [int(element) for element in elements] == [0, 1, 2, 3, 4]
        assert list(elements) == []


def test_what_the_dataset_raises_comes_in_its_place() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda i: tf.debugging.check_numerics(1 / (1 - i), "x"))
    with closing(Ahead(dataset, nothing, "ahead")) as elements:
        assert float(next(elements)) == 1.0
        with pytest.raises(tf.errors.InvalidArgumentError):
            next(elements)
        assert list(elements) == []


def test_a_wait_ends_when_the_check_says_so() -> None:
    released = threading.Event()

    def wait() -> Any:
        released.wait(120)
        return 1

    dataset = tf.data.Dataset.range(1).map(lambda _: tf.py_function(wait, [], tf.int64))

    def check() -> None:
        raise ServerUnavailableError("gone")

    with (
        closing(Ahead(dataset, check, "ahead-stuck")) as elements,
        pytest.raises(ServerUnavailableError, match="gone"),
    ):
        next(elements)
    released.set()


def test_its_thread_ends_when_it_is_closed() -> None:
    elements = Ahead(tf.data.Dataset.range(1 << 40), nothing, "ahead-closed")
    next(elements)
    assert alive("ahead-closed")
    elements.close()
    deadline = time.monotonic() + 60
    while alive("ahead-closed") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive("ahead-closed")
