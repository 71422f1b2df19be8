"""Tests of the shared reader: its window, its errors, and its release."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from infeed_server.engines.base import Request, Trainer
from infeed_server.engines.sequential import window
from infeed_server.engines.sequential.local_backend import LocalBackend
from infeed_server.engines.sequential.ranks import RankTracker
from infeed_server.engines.sequential.shared_reader import SharedReader, WrongReaderError
from infeed_server.engines.sequential.window import ReadKey
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sequential_plan import plan_sequential

Make = Callable[[], tf.data.Dataset]

TRAINER = Trainer(feed_id="a")


def new_backend(make: Make) -> LocalBackend:
    definition = parse({"source": {"dataset": make}, "batch": {"size": 4}})
    return LocalBackend(plan_sequential("n", definition, definition.source))


def open_reader(backend: LocalBackend, slots: int, window_bytes: int = 1 << 20) -> SharedReader:
    reader = SharedReader(
        backend, ReadKey(0, slots, 1), RankTracker(1, 0, slots), lambda: window_bytes
    )
    reader.connect(TRAINER, 0, slots)
    return reader


def answer(reader: SharedReader, start: int, count: int) -> Any:
    return reader.answer(Request(0, start, count, count), 0, lambda: True)


def read_through(reader: SharedReader, steps: range) -> None:
    """Requests batches of ten as a single trainer does."""
    for step in steps:
        assert answer(reader, 10 * step, 10) is not None
        reader.on_sent(TRAINER, 10 * step)


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(1000).map(lambda i: {"x": i})


def byte_strings() -> tf.data.Dataset:
    """1000 byte strings of 100 bytes."""
    return tf.data.Dataset.range(1000).map(lambda _: {"x": tf.constant("w" * 100)})


def failing_at_5() -> tf.data.Dataset:
    def check(i: tf.Tensor) -> int:
        if int(i) == 5:
            raise KeyError("no entry for five")
        return int(i)

    def transform(i: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"x": tf.ensure_shape(tf.py_function(check, [i], tf.int64), [])}

    return tf.data.Dataset.range(10).map(transform)


def test_skipping_ahead_keeps_no_blocks_before_the_gap() -> None:
    reader = open_reader(new_backend(numbers), 4)

    def read(trainer: Trainer, start: int) -> list[int]:
        batch = answer(reader, start, 4)
        reader.on_sent(trainer, start)
        return list(batch.arrays["x"])

    assert read(TRAINER, 0) == [0, 1, 2, 3]
    reader.disconnect(TRAINER)
    # Another job takes over far ahead. The positions in between were never kept.
    ahead, late = Trainer(feed_id="b"), Trainer(feed_id="c")
    assert reader.can_serve(ahead, 400, 4)
    reader.connect(ahead, 400, 4)
    assert read(ahead, 400) == [400, 401, 402, 403]
    reader.disconnect(ahead)
    assert not reader.can_serve(late, 0, 4)
    reader.connect(late, 0, 4)
    with pytest.raises(WrongReaderError):
        read(late, 4)
    reader.close()


def test_each_caller_of_a_failed_reader_gets_its_own_error() -> None:
    reader = open_reader(new_backend(failing_at_5), 2)
    raised, depths = [], []
    for start in (4, 6, 4):
        with pytest.raises(tf.errors.UnknownError) as caught:
            answer(reader, start, 2)
        raised.append(caught.value)
        cause = caught.value.__cause__
        depths.append(len(traceback.extract_tb(cause.__traceback__)))
    assert len({id(error) for error in raised}) == 3
    assert {str(error) for error in raised} == {str(cause)}
    assert all(error.__cause__ is cause for error in raised)
    assert len(set(depths)) == 1


def test_unwanted_request_leaves_the_reader_usable() -> None:
    reader = open_reader(new_backend(numbers), 4)
    assert reader.answer(Request(0, 400, 4, 4), 0, lambda: False) is None
    assert answer(reader, 0, 4).sample_ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("make", "row_bytes"), [(numbers, 8), (byte_strings, 8 + 100)])
def test_full_window_holds_three_steps(make: Make, row_bytes: int) -> None:
    reader = open_reader(new_backend(make), 10, window_bytes=2)
    assert reader.window_bytes == 0
    read_through(reader, range(8))
    assert reader.window_bytes == 3 * 10 * row_bytes
    reader.close()


def test_large_blocks_are_limited_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_MAX_RETAINED_BYTES", 100)
    reader = open_reader(new_backend(numbers), 10, window_bytes=2)  # blocks of 80 bytes
    read_through(reader, range(20))
    assert reader.window_bytes <= 2 * 80
    # A request beyond the limit, some steps ahead:
    assert answer(reader, 250, 30) is not None
    reader.on_sent(TRAINER, 250)
    read_through(reader, range(28, 40))
    assert reader.window_bytes <= 2 * 80
    reader.close()
