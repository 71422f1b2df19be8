"""The ranks of a job at one reading of a dataset: who waits for whom, and what is refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed_server.engines import ranks as ranks_module
from infeed_server.engines import reader as reader_module
from infeed_server.engines import sequential as sequential_module
from infeed_server.engines import teller as teller_module
from infeed_server.engines import window as window_module
from infeed_server.engines.base import Answer, End, Request, Trainer
from infeed_server.engines.budget import Budget, default_limit
from infeed_server.engines.local import LocalDataset
from infeed_server.engines.sequence import SequentialSession
from infeed_server.engines.sequential import SequentialEngine
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sequential import plan_sequential

SLOTS = 4
BLOCK = SLOTS * 8
"""Bytes of a block of int64."""

Make = Callable[[], tf.data.Dataset]


class Numbers:
    """0, 1, 2, ... `count`, from Python; counts how often it is read."""

    def __init__(self, count: int = 10_000) -> None:
        self.count = count
        self.readings = 0

    def __call__(self) -> tf.data.Dataset:
        def rows() -> Iterator[dict[str, int]]:
            self.readings += 1
            for number in range(self.count):
                yield {"x": number}

        signature = {"x": tf.TensorSpec([], tf.int64)}
        return tf.data.Dataset.from_generator(rows, output_signature=signature)


class Stream:
    """One rank, which takes batch after batch when told to."""

    def __init__(self, session: SequentialSession, trainer: Trainer) -> None:
        self.session = session
        self.rank, self._world = trainer.rank, trainer.world_size
        self.step = 0
        self.target = 0
        """Where the batch that was asked for last ends."""

    def ask(self, step: int | None = None, needs: int = 0, step_end: int = 0) -> Future[Answer]:
        self.step = self.step if step is None else step
        start = SLOTS * (self.step * self._world + self.rank)
        self.step += 1
        self.target = start + SLOTS
        return self.session.submit(Request(0, start, SLOTS, SLOTS, needs, step_end))

    def take(self, count: int = 1) -> list[int]:
        """The numbers of the next batches."""
        return [number for _ in range(count) for number in self.took(self.ask())]

    def took(self, asked: Future[Answer]) -> list[int]:
        answer = asked.result(60)
        self.session.sent()
        return [int(number) for number in answer.arrays["x"]]


@pytest.fixture
def engines() -> Iterator[Callable[..., SequentialEngine]]:
    made: list[SequentialEngine] = []

    def make(dataset: Make, **source: Any) -> SequentialEngine:
        definition = parse({"source": {"dataset": dataset, **source}, "batch": {"size": SLOTS}})
        local = LocalDataset(plan_sequential("n", definition, definition.source))
        made.append(SequentialEngine(local, Budget(default_limit())))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def stream(
    engine: SequentialEngine, rank: int = 0, world: int = 1, job: str = "job", epochs: int = 0
) -> Stream:
    trainer = Trainer(rank, world, f"{job} {rank}")
    session = engine.open(SLOTS, epochs, trainer)
    session.weigh(BLOCK)
    return Stream(session, trainer)


@pytest.fixture
def comes(waits: Any, eventually: Any) -> Callable[[Stream, Future[Answer]], bool]:
    """Whether what a stream asked for last comes, rather than waits for other ranks."""

    def find(one: Stream, asked: Future[Answer]) -> bool:
        eventually(lambda: asked.done() or waits.has(one.rank, one.target), "it comes or waits")
        return asked.done()

    return find


def numbers(*batches: int) -> list[int]:
    return [SLOTS * batch + slot for batch in batches for slot in range(SLOTS)]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of three steps."""
    monkeypatch.setattr(sequential_module, "_WINDOW_BYTES", 2)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("deterministic", [True, False])
def test_the_fastest_rank_waits_for_the_slowest(
    engines: Any, comes: Any, deterministic: bool
) -> None:
    dataset = Numbers()
    engine = engines(dataset, deterministic=deterministic)
    fast, slow = (stream(engine, rank, 2) for rank in range(2))
    first = fast.ask()
    # Without an order, until all are there.
    assert comes(fast, first) == deterministic
    slow.ask().result(60)
    assert fast.took(first) == numbers(0)
    slow.session.sent()
    got = []
    while comes(fast, asked := fast.ask()):
        got += fast.took(asked)
        assert len(got) < 40 * SLOTS
    assert got == numbers(*range(2, 2 + 2 * (len(got) // SLOTS), 2))
    # It goes on as the slow one does, which finds all that is its own.
    for step in range(1, 20):
        assert slow.take() == numbers(2 * step + 1)
        got += fast.took(asked)
        asked = fast.ask()
    assert got == numbers(*range(2, 2 + 2 * (len(got) // SLOTS), 2))
    assert dataset.readings == 1
    assert engine.window_bytes() <= 4 * 2 * BLOCK


@pytest.fixture
def take_on(comes: Any, clock: Any) -> Callable[[Stream, int], tuple[list[int], int]]:
    """Takes batches; each time that one waits, the time passes after which a rank is given up.

    Returns their numbers, and how often that was.
    """

    def take(one: Stream, count: int) -> tuple[list[int], int]:
        got, waited = [], 0
        for _ in range(count):
            asked = one.ask()
            if not comes(one, asked):
                waited += 1
                clock.now += ranks_module.AWAY_SECONDS
            got += one.took(asked)
        return got, waited

    return take


def has_lost_a_rank(engine: SequentialEngine) -> bool:
    return not engine._readers[0]._ranks.whole


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("comes_first", [True, False])
def test_a_rank_that_is_gone_is_waited_for_a_while(
    engines: Any, take_on: Any, eventually: Any, comes_first: bool
) -> None:
    dataset = Numbers()
    engine = engines(dataset)
    here = stream(engine, 0, 2)
    if comes_first:
        gone = stream(engine, 1, 2)
        assert gone.take() == numbers(1)
        gone.session.close()
        eventually(lambda: has_lost_a_rank(engine), "it has left")
    got, waited = take_on(here, 40)
    assert got == numbers(*range(0, 80, 2))
    assert waited == 1
    # Back too late, it has the dataset read anew: it is deterministic, so nothing is lost.
    assert dataset.readings == 1
    back = stream(engine, 1, 2)
    back.step = 1 if comes_first else 0
    assert back.take() == numbers(3 if comes_first else 1)
    assert dataset.readings == 2


@pytest.mark.usefixtures("narrow")
def test_who_is_waited_for_stands_in_the_log(
    engines: Any, clock: Any, comes: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engines(Numbers())
    here, idle = (stream(engine, rank, 3) for rank in (0, 2))
    assert idle.take() == numbers(2)
    told = "n: rank 0 of 3 waits for rank 1: the window is full"
    with caplog.at_level(logging.WARNING):
        while comes(here, asked := here.ask()):
            here.took(asked)
        assert told not in caplog.text  # most waits are short
        clock.now += 10
        eventually(lambda: told in caplog.text, "it is told after ten seconds")
        assert not asked.done()


def test_a_rank_that_comes_back_finds_what_was_on_its_way(engines: Any) -> None:
    dataset = Numbers()
    engine = engines(dataset, deterministic=False)
    first = stream(engine)
    assert first.take(3) == numbers(0, 1, 2)
    # The trainer saw the first batch only when its connection broke.
    again = stream(engine)
    first.session.close()
    again.step = 1
    assert again.take(3) == numbers(1, 2, 3)
    assert dataset.readings == 1


@pytest.mark.usefixtures("narrow")
def test_without_an_order_what_is_gone_is_refused(
    engines: Any, take_on: Any, eventually: Any
) -> None:
    engine = engines(Numbers(), deterministic=False)
    here, gone = (stream(engine, rank, 2) for rank in range(2))
    first = here.ask()
    assert gone.take() == numbers(1)
    gone.session.close()
    eventually(lambda: has_lost_a_rank(engine), "it has left")
    assert here.took(first) == numbers(0)
    assert take_on(here, 20) == (numbers(*range(2, 42, 2)), 1)
    back = stream(engine, 1, 2)
    back.step = 1
    with pytest.raises(infeed.CursorError, match="cannot continue at position 12 for rank 1 of 2"):
        back.ask().result(60)
    # So is a feed that began elsewhere, though the reading comes to that position.
    other = stream(engine, 0, 2, job="other")
    other.step = 3
    with pytest.raises(infeed.CursorError, match="would repeat samples"):
        other.ask().result(60)
    # The others read on.
    assert here.take() == numbers(42)


def test_without_an_order_no_rank_is_served_before_all_are_there(
    engines: Any, clock: Any, comes: Any
) -> None:
    engine = engines(Numbers(), deterministic=False)
    here = [stream(engine, rank, 4) for rank in (0, 2)]
    asked = [one.ask() for one in here]
    assert not any(comes(one, had) for one, had in zip(here, asked, strict=True))
    clock.now += 300
    for each in asked:
        with pytest.raises(infeed.InvalidRequestError, match="2 of them, such as rank 1, did not"):
            each.result(60)
    # The next job is another reading.
    again = [stream(engine, rank, 4, job="next") for rank in range(4)]
    asked = [one.ask() for one in again]
    assert [one.took(had) for one, had in zip(again, asked, strict=True)] == [
        numbers(batch) for batch in range(4)
    ]


def test_without_an_order_nobody_waits_for_one_that_went_before_all_had_come(
    engines: Any, comes: Any, eventually: Any
) -> None:
    engine = engines(Numbers(), deterministic=False)
    early, first = stream(engine, 0, 3, "gone"), stream(engine, 1, 3)
    assert not comes(early, early.ask())
    waiting = first.ask()  # with who is about to go
    assert not comes(first, waiting)
    early.session.close()
    eventually(lambda: len(engine._sessions) == 1, "it has left")
    second, third = stream(engine, 0, 3), stream(engine, 2, 3)
    asked = [second.ask(), third.ask()]
    assert first.took(waiting) == numbers(1)
    assert second.took(asked[0]) + third.took(asked[1]) == numbers(0, 2)


def test_two_jobs_without_an_order_have_readings_of_their_own(engines: Any) -> None:
    dataset = Numbers()
    engine = engines(dataset, deterministic=False)
    one, other = (stream(engine, job=job) for job in ("one", "other"))
    assert one.take(3) == other.take(3) == numbers(0, 1, 2)
    assert dataset.readings == 2


@pytest.mark.usefixtures("narrow")
def test_a_job_that_is_faster_does_not_wait_for_another(engines: Any) -> None:
    engine = engines(Numbers())
    slow, fast = (stream(engine, job=job) for job in ("slow", "fast"))
    assert slow.take() == numbers(0)
    assert fast.take(40) == numbers(*range(40))
    assert slow.take() == numbers(1)


def test_ranks_that_resume_go_the_way_together(engines: Any) -> None:
    dataset = Numbers()
    engine = engines(dataset)
    ranks = [stream(engine, rank, 3) for rank in range(3)]
    asked = [one.ask(step=70) for one in reversed(ranks)]
    got = [one.took(had) for one, had in zip(reversed(ranks), asked, strict=True)]
    assert got == [numbers(212), numbers(211), numbers(210)]
    assert dataset.readings == 1
    # What was passed over is not kept.
    assert engine.window_bytes() <= 6 * BLOCK


def test_what_is_passed_over_stands_in_the_log(
    engines: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(teller_module, "_TELL_SECONDS", 0.05)
    engine = engines(lambda: tf.data.Dataset.range(1 << 40).map(lambda i: {"x": i}))
    with caplog.at_level(logging.INFO):
        far = stream(engine)
        asked = far.ask(step=1 << 30)
        way = f"n: reading on to position {SLOTS * (1 << 30) + SLOTS}; at "
        eventually(lambda: way in caplog.text, "it is told")
        # The trainer leaves, and nobody reads on for it.
        far.session.close()
        with pytest.raises(infeed.ServerUnavailableError):
            asked.result(60)


def test_more_jobs_than_readings_are_refused_and_nobody_is_thrown_out(
    engines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(sequential_module, "_MAX_READERS", 3)
    dataset = Numbers()
    engine = engines(dataset)
    jobs = [stream(engine, job=str(job)) for job in range(3)]
    for _ in range(3):
        for job in jobs:
            job.take()
    late = stream(engine, job="late")
    with pytest.raises(infeed.ServerUnavailableError, match="3 jobs read at different places"):
        late.ask().result(60)
    assert [job.take() for job in jobs] == [numbers(3)] * 3
    assert dataset.readings == 3
    # One that ends makes room.
    jobs[0].session.close()
    eventually(lambda: len(engine._sessions) == 3, "it has left")
    eventually(lambda: engine._readers[0].unused is not None, "its reading is free")
    assert stream(engine, job="after").take() == numbers(0)
    assert jobs[1].take() == numbers(4)


def test_a_reading_that_nobody_uses_is_let_go(
    engines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(sequential_module, "AWAY_SECONDS", 0.05)
    engine = engines(Numbers())
    one = stream(engine)
    one.take(5)
    assert engine.window_bytes() >= 5 * BLOCK
    one.session.close()
    eventually(lambda: not engine.window_bytes(), "it is let go")
    assert stream(engine).take() == numbers(0)


def test_byte_strings_count_with_what_they_take(engines: Any) -> None:
    def texts() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors({"x": b"a" * 1000}).repeat()

    engine = engines(texts)
    asked = stream(engine).ask()
    assert asked.result(60).arrays["x"].tolist() == [b"a" * 1000] * SLOTS
    assert engine.window_bytes() >= SLOTS * 1000


BASE, SIZE = 5, 2
COUNTS = [0, 1, 17, 18, 25]
"""Samples from `BASE` on: none, less than a batch, and around whole steps of 1 and 3 ranks."""


@pytest.fixture(scope="module")
def counted(shared: Any) -> Any:
    """A server with a dataset for each of `COUNTS`."""
    return shared(
        {
            f"n{count}": parse(
                {"source": {"dataset": Numbers(BASE + count)}, "batch": {"size": SIZE}}
            )
            for count in COUNTS
        }
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("world", [1, 3])
def test_all_ranks_end_at_the_same_step(
    counted: Any, count: int, remainder: Any, world: int
) -> None:
    """Of a dataset whose length nobody knows."""
    base, size, name = BASE, SIZE, f"n{count}"
    total = base + count
    address = str(counted.address)
    with infeed.connect(address, name) as feed:
        state = {**feed.state(), "position": base}
    got: dict[int, list[infeed.Batch]] = {}
    ends, cursors = {}, {}

    def read(rank: int) -> None:
        shard = infeed.Shard(rank, world)
        options: dict[str, Any] = {"shard": shard, "epochs": 1, "remainder": remainder}
        with infeed.connect(address, name, state=state, **options) as feed:
            got[rank] = []
            for one in feed:
                got[rank].append(one)
                cursors[rank] = feed.state()["position"]  # before the feed tells its end
            ends[rank] = feed.state()["position"]

    threads = [threading.Thread(target=read, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    steps = count // (world * size) if remainder == "drop" else -(-count // (world * size))
    assert [len(got[rank]) for rank in range(world)] == [steps] * world
    samples = sorted(
        int(value) for batches in got.values() for one in batches for value in one["x"][one.mask]
    )
    end = total if remainder == "pad" else base + steps * world * size
    assert samples == list(range(base, end))
    assert set(ends.values()) == {end}
    assert set(cursors.values()) == ({end} if steps else set())


def test_a_request_says_how_much_data_it_needs(engines: Any) -> None:
    engine = engines(Numbers(10))
    one = stream(engine, epochs=1)
    assert isinstance(one.ask(step=1, needs=11).result(60), End)
    answer = stream(engine, epochs=1, job="b").ask(step=1, needs=10).result(60)
    assert answer.sample_ids.tolist() == [4, 5, 6, 7]
    beyond = stream(engine, epochs=1, job="c").ask(step=5, needs=9).result(60)
    assert beyond.sample_ids.tolist() == [-1] * SLOTS
    assert not np.any(beyond.arrays["x"])


def test_a_batch_says_where_the_data_ends_inside_of_its_step(engines: Any) -> None:
    """On every rank: also the one whose batch is full, and the one whose batch is empty."""
    engine = engines(Numbers(3 * SLOTS + 5))
    found = []
    for rank in range(3):
        one = stream(engine, rank, 3, epochs=1)
        for step in range(2):
            answer = one.ask(needs=3 * SLOTS * step + 1, step_end=3 * SLOTS * (step + 1))
            found.append(answer.result(60).position_count)
            one.session.sent()
    assert found == [None, 3 * SLOTS + 5] * 3
    unasked = stream(engine, 0, 3, epochs=1).ask(step=1).result(60)
    assert unasked.position_count is None


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than 1 KiB of a step is kept."""
    monkeypatch.setattr(sequential_module, "_WINDOW_BYTES", 2)
    monkeypatch.setattr(reader_module, "_STEP_BYTES", 1 << 10)
    monkeypatch.setattr(window_module, "_LARGE_BYTES", 1)


@pytest.mark.usefixtures("small_steps")
def test_a_step_that_is_too_large_goes_without_its_end(engines: Any) -> None:
    engine = engines(Numbers(500))
    answer = stream(engine, 0, 1000, epochs=1).ask(needs=1, step_end=1000 * SLOTS).result(60)
    assert answer.arrays["x"].tolist() == numbers(0)
    assert answer.position_count is None


@pytest.mark.usefixtures("small_steps")
def test_a_step_that_is_too_large_to_be_kept(engines: Any) -> None:
    engine = engines(Numbers())
    world = 1000
    with pytest.raises(infeed.InvalidRequestError, match="a step of 1000 ranks of 'n' takes more"):
        stream(engine, 0, world, epochs=1).ask(needs=world * SLOTS).result(60)


class Dice:
    """Other numbers each time that it is read."""

    def __call__(self) -> tf.data.Dataset:
        def rows() -> Iterator[np.ndarray[Any, Any]]:
            yield from np.random.default_rng().integers(0, 1 << 60, 100)

        return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))


@pytest.mark.parametrize("said", [None, True, False])
def test_a_dataset_that_only_seems_deterministic_is_found_out(
    engines: Any, monkeypatch: pytest.MonkeyPatch, said: bool | None
) -> None:
    engine = engines(Dice(), **({} if said is None else {"deterministic": said}))

    def first(job: str) -> Answer:
        return stream(engine, job=job).ask().result(60)

    one = first("a")
    if said is None:
        for _ in range(2):
            with pytest.raises(infeed.SourceError, match="began with other elements when it was"):
                first("b")
    else:
        other = first("b")
        assert one.arrays["features"].tolist() != other.arrays["features"].tolist()
