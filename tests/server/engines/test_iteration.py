"""One reading of a dataset: where its iterator ends."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.waiting import wait_until

from infeed_server.engines import iteration as module
from infeed_server.engines.ahead import Ahead
from infeed_server.engines.iteration import Iteration


@pytest.fixture
def retired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The threads on which iterators were destroyed; none was by the garbage collector."""
    threads: list[str] = []
    watched: list[weakref.ref[object]] = []
    begin = Iteration.__init__

    def watch(iteration: Iteration, dataset: tf.data.Dataset) -> None:
        def gone(_: object) -> None:
            threads.append(threading.current_thread().name)

        begin(iteration, dataset)
        watched.append(weakref.ref(iteration._only[0]._iterator_resource, gone))

    monkeypatch.setattr(Iteration, "__init__", watch)
    gc.disable()  # which would destroy them some day, on the thread that it happens to run on
    yield lambda: threads
    gc.enable()


def failing() -> tf.data.Dataset:
    return tf.data.Dataset.range(3).map(lambda i: tf.debugging.check_numerics(1 / (1 - i), "x"))


def test_who_keeps_an_error_does_not_keep_the_iterator(retired: Callable[[], list[str]]) -> None:
    with contextlib.closing(Iteration(failing())) as elements:
        next(elements)
        with pytest.raises(tf.errors.InvalidArgumentError, match="x : Tensor had Inf") as kept:
            next(elements)
        assert float(next(elements)) == -1.0  # an error is not the end
        with pytest.raises(StopIteration) as end:
            next(elements)
    wait_until(retired, "the iterator is destroyed")
    assert retired() == ["infeed-retire"]
    assert kept.value.message
    assert end.value.__context__ is None


@pytest.mark.parametrize("dataset", [failing, lambda: tf.data.Dataset.range(1)])
def test_what_is_read_ahead_ends_on_a_thread_of_its_own(
    dataset: Callable[[], tf.data.Dataset], retired: Callable[[], list[str]]
) -> None:
    kept = None
    with contextlib.closing(Ahead(dataset(), lambda: None, "ahead")) as elements:
        try:
            next(elements)
            next(elements)
        except (StopIteration, tf.errors.InvalidArgumentError) as error:
            kept = error
    assert kept is not None
    wait_until(retired, "the iterator is destroyed")
    assert retired() == ["infeed-retire"]


def test_no_thread_is_started_at_the_interpreters_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never run, and who starts it waits until it does."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(is_finalizing=lambda: True))
    monkeypatch.setattr(threading.Thread, "start", pytest.fail)
    dataset: Any = [1]
    Iteration(dataset).close()
