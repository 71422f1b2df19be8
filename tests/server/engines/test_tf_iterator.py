"""Tests of dataset iterators: their elements, errors, and on which thread they are destroyed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.waiting import wait_until

from infeed_server.engines import tf_data as module
from infeed_server.engines.tf_data import TfIterator


@pytest.fixture
def destroying_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the threads on which iterators were destroyed, without garbage collection."""
    threads: list[str] = []
    references: list[weakref.ref[object]] = []
    original = TfIterator.__init__

    def watch(iterator: TfIterator, dataset: tf.data.Dataset) -> None:
        def on_destroyed(_: object) -> None:
            threads.append(threading.current_thread().name)

        original(iterator, dataset)
        references.append(weakref.ref(iterator._only[0]._iterator_resource, on_destroyed))

    monkeypatch.setattr(TfIterator, "__init__", watch)
    gc.disable()  # or it might destroy them, on an arbitrary thread
    yield threads
    gc.enable()


def failing() -> tf.data.Dataset:
    return tf.data.Dataset.range(3).map(lambda i: tf.debugging.check_numerics(1 / (1 - i), "x"))


def test_kept_error_does_not_keep_the_iterator(destroying_threads: list[str]) -> None:
    with closing(TfIterator(failing())) as elements:
        next(elements)
        with pytest.raises(tf.errors.InvalidArgumentError, match="x : Tensor had Inf") as kept:
            next(elements)
        assert float(next(elements)) == -1.0  # an error is not the end
        with pytest.raises(StopIteration) as end:
            next(elements)
    wait_until(lambda: destroying_threads, "the iterator is destroyed")
    assert destroying_threads == ["infeed-retire"]
    assert kept.value.message
    assert end.value.__context__ is None


@pytest.mark.parametrize("exhausted", [True, False])
def test_close_does_not_wait_for_destruction(exhausted: bool) -> None:
    gate, destroyed = threading.Event(), []

    class SlowIterator:
        def __init__(self) -> None:
            self._elements = iter(range(3))

        def __iter__(self) -> SlowIterator:
            return self

        def __next__(self) -> int:
            return next(self._elements)

        def __del__(self) -> None:
            gate.wait(120)
            destroyed.append(threading.current_thread())

    class Dataset:
        def __iter__(self) -> SlowIterator:
            return SlowIterator()

    iterator = TfIterator(Dataset())
    assert next(iterator) == 0
    if exhausted:
        assert list(iterator) == [1, 2]
    iterator.close()
    del iterator
    assert not destroyed
    gate.set()
    wait_until(lambda: destroyed, "it is destroyed")
    assert len(destroyed) == 1
    assert destroyed != [threading.current_thread()]


def test_close_at_interpreter_exit_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never run, and starting it would block."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(is_finalizing=lambda: True))
    monkeypatch.setattr(threading.Thread, "start", pytest.fail)
    dataset: Any = [1]
    TfIterator(dataset).close()
