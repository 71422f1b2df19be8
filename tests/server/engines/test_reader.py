"""Readers of datasets: their windows, what they share, what they refuse, how they go."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed_server import Pipeline
from infeed_server.engines import window
from infeed_server.engines.base import Request, Trainer
from infeed_server.engines.blocks import Kind
from infeed_server.engines.iteration import Iteration
from infeed_server.engines.local import LocalDataset
from infeed_server.engines.ranks import Ranks
from infeed_server.engines.reader import DatasetReader, LeftWindowError
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sequential import plan_sequential

N = 10

Make = Callable[[], tf.data.Dataset]

ALONE = Trainer(feed_id="a")


def pipeline(make: Make, **options: Any) -> Pipeline:
    return parse({"source": {"dataset": make}, "batch": {"size": 4}, **options})


def reader_of(make: Make, slots: int, window_bytes: int = 1 << 20) -> DatasetReader:
    definition = pipeline(make)
    dataset = LocalDataset(plan_sequential("n", definition, definition.source))
    reader = DatasetReader(dataset, Kind(0, slots, 1), Ranks(1, 0, slots), lambda: window_bytes)
    reader.join(ALONE, 0, slots)
    return reader


def kept(batches: list[infeed.Batch], field: str = "x") -> list[int]:
    """The values of a field in the slots that hold a sample, batch after batch."""
    return [int(value) for batch in batches for value in batch[field][batch.mask]]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that keep three steps and no more."""
    from infeed_server.engines import sequential

    monkeypatch.setattr(sequential, "_WINDOW_BYTES", 2)


def long() -> tf.data.Dataset:
    return tf.data.Dataset.range(1000).map(lambda i: {"x": i})


STEPS = 30
"""Enough that the stream at 900 goes over the end of the epoch."""


def test_streams_at_once_with_windows_too_small_for_them(serve: Any, narrow: None) -> None:
    server = serve({"n": pipeline(long)})
    wrong: list[Any] = []
    with infeed.connect(str(server.address), "n") as feed:
        begin = feed.state()

    def take(position: int) -> None:
        state = {**begin, "position": position}
        try:
            with infeed.connect(str(server.address), "n", state=state) as feed:
                got = kept([feed.next(60) for _ in range(STEPS)])
            if got != [i % 1000 for i in range(position, position + 4 * STEPS)]:
                wrong.append((position, got))
        except infeed.InfeedError as error:
            wrong.append((position, error))

    threads = [threading.Thread(target=take, args=(position,)) for position in (0, 3, 400, 900)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong


def test_a_reader_that_goes_far_ahead_keeps_nothing_with_a_gap_behind_it() -> None:
    reader = reader_of(long, 4)

    def ask(trainer: Trainer, start: int) -> Any:
        answer = reader.answer(Request(0, start, 4, 4), trainer.rank, lambda: True)
        reader.sent(trainer, start)
        return answer.arrays["x"].tolist()

    assert ask(ALONE, 0) == [0, 1, 2, 3]
    reader.leave(ALONE)
    # Another job has it now, far ahead; when that has left, what is between was never kept.
    ahead, late = Trainer(feed_id="b"), Trainer(feed_id="c")
    assert reader.takes(ahead, 400, 4)
    reader.join(ahead, 400, 4)
    assert ask(ahead, 400) == [400, 401, 402, 403]
    reader.leave(ahead)
    assert not reader.takes(late, 0, 4)
    reader.join(late, 0, 4)
    with pytest.raises(LeftWindowError):
        ask(late, 4)
    reader.close()


def tiny() -> tf.data.Dataset:
    """One sample, without a length."""
    return tf.data.Dataset.range(3).filter(lambda i: i == 1).map(lambda i: {"x": i})


def test_epochs_shorter_than_a_batch(serve: Any, narrow: None) -> None:
    server = serve({"n": pipeline(tiny)})
    with infeed.connect(str(server.address), "n", epochs=6, remainder="pad") as feed:
        got = [feed.next(60) for _ in range(2)]
        assert next(feed, None) is None
    assert [batch.epoch for batch in got] == [0, 4]
    assert kept(got) == [1] * 6
    assert got[1].sample_ids.tolist() == [0, 0, -1, -1]


def test_ranks_of_one_job_read_the_dataset_once(serve: Any) -> None:
    readings = []

    def watched() -> tf.data.Dataset:
        def rows() -> Iterator[dict[str, int]]:
            readings.append(threading.get_ident())
            for i in range(40):
                yield {"x": i}

        return tf.data.Dataset.from_generator(
            rows, output_signature={"x": tf.TensorSpec([], tf.int64)}
        )

    server = serve({"n": pipeline(watched)})
    readings.clear()  # the server tried the first batch
    shards = [infeed.Shard(rank, 2) for rank in range(2)]
    feeds = [infeed.connect(str(server.address), "n", epochs=1, shard=shard) for shard in shards]
    got = [batch for _ in range(5) for batch in (feeds[0].next(60), feeds[1].next(60))]
    for feed in feeds:
        feed.close()
    assert kept(got) == list(range(40))
    assert len(readings) == 1


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
    ("make", "words"),
    [
        (growing, "growing: element 1 of epoch 0 is no batch of 4 .*'features' has 6 rows"),
        (lopsided, "lopsided: element 1 of .*: 'x' has 4 rows, 'label' has 3 rows"),
    ],
)
def test_an_element_that_is_no_batch_like_the_first(serve: Any, make: Make, words: str) -> None:
    server = serve({"n": parse({"source": {"dataset": make}})})
    with infeed.connect(str(server.address), "n", epochs=1) as feed:
        assert feed.next(60).mask.all()
        with pytest.raises(infeed.SourceError, match=words):
            feed.next(60)


def failing_at_5() -> tf.data.Dataset:
    def check(i: tf.Tensor) -> int:
        if int(i) == 5:
            raise KeyError("no entry for five")
        return int(i)

    def stage(i: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"x": tf.ensure_shape(tf.py_function(check, [i], tf.int64), [])}

    return tf.data.Dataset.range(N).map(stage)


def test_a_reader_that_failed_never_tells_an_end() -> None:
    reader = reader_of(failing_at_5, 2)
    assert reader.answer(Request(0, 2, 2, 2), 0, lambda: True) is not None
    for start in (4, 6, 100):
        with pytest.raises(tf.errors.UnknownError, match="no entry for five"):
            reader.answer(Request(0, start, 2, 2), 0, lambda: True)
    # What was read before is still there.
    batch = reader.answer(Request(0, 2, 2, 2), 0, lambda: True)
    assert batch.sample_ids.tolist() == [2, 3]


def test_a_reader_gives_up_when_nobody_waits() -> None:
    reader = reader_of(long, 4)
    assert reader.answer(Request(0, 400, 4, 4), 0, lambda: False) is None
    # It is as good as before for others.
    assert reader.answer(Request(0, 0, 4, 4), 0, lambda: True).sample_ids.tolist() == [0, 1, 2, 3]


def test_a_reader_that_nobody_uses_is_gone_at_once() -> None:
    reader = reader_of(long, 4)
    reader.answer(Request(0, 0, 4, 4), 0, lambda: True)
    gone = weakref.ref(reader)
    del reader
    assert gone() is None  # without waiting for the garbage collector


@pytest.mark.parametrize("whole", [True, False])
def test_an_iterator_is_destroyed_where_nobody_waits(whole: bool, eventually: Any) -> None:
    gate, destroyed = threading.Event(), []

    class Slow:
        def __init__(self) -> None:
            self._left = iter(range(3))

        def __iter__(self) -> Slow:
            return self

        def __next__(self) -> int:
            return next(self._left)

        def __del__(self) -> None:
            gate.wait(120)
            destroyed.append(threading.current_thread())

    class Dataset:
        def __iter__(self) -> Slow:
            return Slow()

    iteration = Iteration(Dataset())
    assert next(iteration) == 0
    if whole:
        assert list(iteration) == [1, 2]
    iteration.close()
    del iteration
    assert not destroyed  # and yet we are here
    gate.set()
    eventually(lambda: destroyed, "it is destroyed")
    assert len(destroyed) == 1
    assert destroyed != [threading.current_thread()]


def words() -> tf.data.Dataset:
    """1000 byte strings of 100 bytes."""
    return tf.data.Dataset.range(1000).map(lambda _: {"x": tf.constant("w" * 100)})


def test_a_window_counts_what_it_keeps() -> None:
    for make, row_bytes in ((long, 8), (words, 8 + 100)):
        reader = reader_of(make, 10, window_bytes=2)
        try:
            assert reader.window_bytes == 0
            read_through(reader, range(8))
            assert reader.window_bytes == 3 * 10 * row_bytes
        finally:
            reader.close()


def test_large_blocks_are_not_kept_for_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_LARGE_BYTES", 100)
    reader = reader_of(long, 10, window_bytes=2)  # blocks of 80 bytes
    try:
        read_through(reader, range(20))
        assert reader.window_bytes <= 2 * 80
        # And one request that takes more than all that is kept, some way ahead:
        assert reader.answer(Request(0, 250, 30, 30), 0, lambda: True) is not None
        reader.sent(ALONE, 250)
        read_through(reader, range(28, 40))
        assert reader.window_bytes <= 2 * 80
    finally:
        reader.close()


def read_through(reader: DatasetReader, steps: range) -> None:
    """As a trainer alone does: a batch of ten is asked for, made, and sent."""
    for step in steps:
        assert reader.answer(Request(0, 10 * step, 10, 10), 0, lambda: True) is not None
        reader.sent(ALONE, 10 * step)
