"""Tests of the sequential engine with several ranks and jobs: waiting, reconnects, refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import tensorflow as tf

import infeed
from infeed_server.engines.base import Answer, Request, Trainer
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_server.pipeline.load import parse
from infeed_service.sequential import engine as engine_module
from infeed_service.sequential import shared_reader as reader_module
from infeed_service.sequential import window as window_module
from infeed_service.sequential.engine import SequentialEngine
from infeed_service.sequential.local_backend import LocalBackend
from infeed_service.sequential.plan import plan_sequential
from infeed_service.sequential.ranks import DISCONNECT_TIMEOUT_SECONDS
from infeed_service.sequential.session import SequentialSession

SLOTS = 4
BLOCK_BYTES = SLOTS * 8
"""Bytes of a block of int64."""

Make = Callable[[], tf.data.Dataset]


class Numbers:
    """A dataset of the numbers up to `count`, from Python; counts its reads."""

    def __init__(self, count: int = 10_000) -> None:
        self.count = count
        self.reads = 0

    def __call__(self) -> tf.data.Dataset:
        def rows() -> Iterator[dict[str, int]]:
            self.reads += 1
            for number in range(self.count):
                yield {"x": number}

        signature = {"x": tf.TensorSpec([], tf.int64)}
        return tf.data.Dataset.from_generator(rows, output_signature=signature)


class Stream:
    """The stream of one rank, which requests batches step by step."""

    def __init__(self, session: SequentialSession, trainer: Trainer) -> None:
        self.session = session
        self.rank, self._world_size = trainer.rank, trainer.world_size
        self.step = 0

    def request(
        self, step: int | None = None, min_position_count: int = 0, step_end: int = 0
    ) -> Future[Answer]:
        self.step = self.step if step is None else step
        start = SLOTS * (self.step * self._world_size + self.rank)
        self.step += 1
        self.last = Request(0, start, SLOTS, SLOTS, min_position_count, step_end)
        return self.session.submit(self.last)

    def read(self, count: int = 1) -> list[int]:
        """Returns the numbers of the next batches."""
        return [number for _ in range(count) for number in self.receive(self.request())]

    def receive(self, future: Future[Answer]) -> list[int]:
        answer = future.result(60)
        self.session.on_sent()
        return [int(number) for number in answer.arrays["x"]]


@pytest.fixture
def engines() -> Iterator[Callable[..., SequentialEngine]]:
    opened: list[SequentialEngine] = []

    def make(dataset: Make, **source: Any) -> SequentialEngine:
        definition = parse({"source": {"dataset": dataset, **source}, "batch": {"size": SLOTS}})
        local = LocalBackend(plan_sequential("n", definition))
        opened.append(SequentialEngine(local, MemoryBudget(default_limit())))
        return opened[-1]

    yield make
    for engine in opened:
        engine.close()


def open_stream(
    engine: SequentialEngine, rank: int = 0, world_size: int = 1, job: str = "job", epochs: int = 0
) -> Stream:
    trainer = Trainer(rank, world_size, f"{job} {rank}")
    session = engine.open(SLOTS, epochs, trainer)
    session.set_batch_bytes(BLOCK_BYTES)
    return Stream(session, trainer)


@pytest.fixture
def answered(waits: set[Request], eventually: Any) -> Callable[[Stream, Future[Answer]], bool]:
    """Returns whether a stream's last request is answered, rather than waits for other ranks."""

    def check(stream: Stream, future: Future[Answer]) -> bool:
        eventually(lambda: future.done() or stream.last in waits, "it is answered or waits")
        return future.done()

    return check


def numbers(*batches: int) -> list[int]:
    return [SLOTS * batch + slot for batch in batches for slot in range(SLOTS)]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of their minimum of three steps."""
    monkeypatch.setattr(engine_module, "_MAX_WINDOW_BYTES", 2)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("deterministic", [True, False])
def test_fastest_rank_waits_for_the_slowest(
    engines: Any, answered: Any, deterministic: bool
) -> None:
    dataset = Numbers()
    engine = engines(dataset, deterministic=deterministic)
    fast, slow = (open_stream(engine, rank, 2) for rank in range(2))
    future = fast.request()
    # Without an order, no rank is served before all are connected.
    assert answered(fast, future) == deterministic
    slow.request().result(60)
    assert fast.receive(future) == numbers(0)
    slow.session.on_sent()
    received = []
    while answered(fast, future := fast.request()):
        received += fast.receive(future)
        assert len(received) < 40 * SLOTS
    assert received == numbers(*range(2, 2 + 2 * (len(received) // SLOTS), 2))
    # The slow rank finds all its batches, and the fast one continues with it.
    for step in range(1, 20):
        assert slow.read() == numbers(2 * step + 1)
        received += fast.receive(future)
        future = fast.request()
    assert received == numbers(*range(2, 2 + 2 * (len(received) // SLOTS), 2))
    assert dataset.reads == 1
    assert engine.figures().window_bytes <= 4 * 2 * BLOCK_BYTES


@pytest.fixture
def read_on(answered: Any, clock: Any) -> Callable[[Stream, int], tuple[list[int], int]]:
    """Reads batches, and passes the disconnect timeout at each wait.

    Returns their numbers and the number of waits.
    """

    def read(stream: Stream, count: int) -> tuple[list[int], int]:
        received, waits = [], 0
        for _ in range(count):
            future = stream.request()
            if not answered(stream, future):
                waits += 1
                clock.now += DISCONNECT_TIMEOUT_SECONDS
            received += stream.receive(future)
        return received, waits

    return read


def has_lost_a_rank(engine: SequentialEngine) -> bool:
    return not engine._readers[0].ranks.all_connected


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("connected_before", [True, False])
def test_missing_rank_is_waited_for_until_the_timeout(
    engines: Any, read_on: Any, eventually: Any, connected_before: bool
) -> None:
    dataset = Numbers()
    engine = engines(dataset)
    present = open_stream(engine, 0, 2)
    if connected_before:
        missing = open_stream(engine, 1, 2)
        assert missing.read() == numbers(1)
        missing.session.close()
        eventually(lambda: has_lost_a_rank(engine), "it is disconnected")
    assert read_on(present, 40) == (numbers(*range(0, 80, 2)), 1)
    # It reconnects too late, so the dataset, which is deterministic, is read again for it.
    assert dataset.reads == 1
    late = open_stream(engine, 1, 2)
    late.step = 1 if connected_before else 0
    assert late.read() == numbers(3 if connected_before else 1)
    assert dataset.reads == 2


def test_reconnected_rank_finds_its_undelivered_batches(engines: Any) -> None:
    dataset = Numbers()
    engine = engines(dataset, deterministic=False)
    stream = open_stream(engine)
    assert stream.read(3) == numbers(0, 1, 2)
    # Only the first batch reached the trainer before its connection was lost.
    reconnected = open_stream(engine)
    stream.session.close()
    reconnected.step = 1
    assert reconnected.read(3) == numbers(1, 2, 3)
    assert dataset.reads == 1


@pytest.mark.usefixtures("narrow")
def test_unordered_data_cannot_be_read_again(engines: Any, read_on: Any, eventually: Any) -> None:
    engine = engines(Numbers(), deterministic=False)
    present, lost = (open_stream(engine, rank, 2) for rank in range(2))
    first = present.request()
    assert lost.read() == numbers(1)
    lost.session.close()
    eventually(lambda: has_lost_a_rank(engine), "it is disconnected")
    assert present.receive(first) == numbers(0)
    assert read_on(present, 20) == (numbers(*range(2, 42, 2)), 1)
    late = open_stream(engine, 1, 2)
    late.step = 1
    with pytest.raises(infeed.CursorError, match="cannot continue at position 12 for rank 1 of 2"):
        late.request().result(60)
    # Neither can a feed that began on another server, even where the read gets to its position.
    other = open_stream(engine, 0, 2, job="other")
    other.step = 3
    with pytest.raises(infeed.CursorError, match="would repeat samples"):
        other.request().result(60)
    assert present.read() == numbers(42)


@pytest.mark.usefixtures("narrow")
def test_fast_job_of_unordered_data_does_not_wait_for_another(engines: Any) -> None:
    engine = engines(Numbers(), deterministic=False)
    slow, fast = (open_stream(engine, job=job) for job in ("slow", "fast"))
    assert slow.read() == numbers(0)
    assert fast.read(20) == numbers(*range(20))
    assert slow.read() == numbers(1)


def test_unordered_data_is_served_once_all_ranks_connect(
    engines: Any, clock: Any, answered: Any
) -> None:
    engine = engines(Numbers(), deterministic=False)
    streams = [open_stream(engine, rank, 4) for rank in (0, 2)]
    futures = [stream.request() for stream in streams]
    assert not any(map(answered, streams, futures))
    clock.now += 300
    for future in futures:
        with pytest.raises(infeed.InvalidRequestError, match="2 of them, such as rank 1, did not"):
            future.result(60)
    # The next job has a reader of its own.
    streams = [open_stream(engine, rank, 4, job="next") for rank in range(4)]
    futures = [stream.request() for stream in streams]
    assert list(map(Stream.receive, streams, futures)) == [numbers(batch) for batch in range(4)]


def test_resuming_ranks_share_one_read(engines: Any) -> None:
    dataset = Numbers()
    engine = engines(dataset)
    streams = [open_stream(engine, rank, 3) for rank in reversed(range(3))]
    futures = [stream.request(step=70) for stream in streams]
    received = list(map(Stream.receive, streams, futures))
    assert received == [numbers(212), numbers(211), numbers(210)]
    assert dataset.reads == 1
    # Skipped blocks are not kept.
    assert engine.figures().window_bytes <= 6 * BLOCK_BYTES


def test_more_jobs_than_readers_are_refused(
    engines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(engine_module, "_MAX_READERS", 3)
    dataset = Numbers()
    engine = engines(dataset)
    jobs = [open_stream(engine, job=str(job)) for job in range(3)]
    for _ in range(3):
        for job in jobs:
            job.read()
    late = open_stream(engine, job="late")
    with pytest.raises(infeed.ServerUnavailableError, match="3 jobs that read at different pos"):
        late.request().result(60)
    assert [job.read() for job in jobs] == [numbers(3)] * 3
    assert dataset.reads == 3
    # The reader of a job that ends is replaced.
    jobs[0].session.close()
    eventually(lambda: len(engine._sessions) == 3, "its session ends")
    eventually(lambda: engine._readers[0].ranks.idle_seconds is not None, "its reader is idle")
    assert open_stream(engine, job="after").read() == numbers(0)
    assert jobs[1].read() == numbers(4)


def test_idle_reader_is_closed(
    engines: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(reader_module, "DISCONNECT_TIMEOUT_SECONDS", 0.05)
    engine = engines(Numbers())
    stream = open_stream(engine)
    stream.read(5)
    assert engine.figures().window_bytes >= 5 * BLOCK_BYTES
    stream.session.close()
    eventually(lambda: not engine.figures().window_bytes, "its window is released")
    assert open_stream(engine).read() == numbers(0)


BASE, SIZE = 5, 2
COUNTS = [0, 17, 25]
"""Samples from `BASE` on: none, less than a batch, and around whole steps of 1 and 3 ranks."""


@pytest.fixture(scope="module")
def server(shared: Any) -> Any:
    """A server with a dataset of unknown length for each of `COUNTS`."""
    return shared(
        {
            f"n{count}": parse(
                {"source": {"dataset": Numbers(BASE + count)}, "batch": {"size": SIZE}}
            )
            for count in COUNTS
        }
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("world_size", "remainder"), [(1, "pad"), (3, "drop"), (3, "pad")])
def test_all_ranks_end_at_the_same_step(
    server: Any, count: int, remainder: Any, world_size: int
) -> None:
    address, name = str(server.address), f"n{count}"
    with infeed.connect(address, name) as feed:
        state = {**feed.state(), "position": BASE}
    batches: dict[int, list[infeed.Batch]] = {}
    ends, cursors = {}, {}

    def read(rank: int) -> None:
        shard = infeed.Shard(rank, world_size)
        options: dict[str, Any] = {"shard": shard, "epochs": 1, "remainder": remainder}
        with infeed.connect(address, name, state=state, **options) as feed:
            batches[rank] = []
            for batch in feed:
                batches[rank].append(batch)
                cursors[rank] = feed.state()["position"]  # before the feed ends
            ends[rank] = feed.state()["position"]

    threads = [threading.Thread(target=read, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    step = world_size * SIZE
    steps = count // step if remainder == "drop" else -(-count // step)
    assert [len(batches[rank]) for rank in range(world_size)] == [steps] * world_size
    samples = sorted(
        int(value)
        for rank in batches.values()
        for batch in rank
        for value in batch["x"][batch.mask]
    )
    end = BASE + (count if remainder == "pad" else steps * step)
    assert samples == list(range(BASE, end))
    assert set(ends.values()) == {end}
    assert set(cursors.values()) == ({end} if steps else set())


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps 1 KiB of a step at most."""
    monkeypatch.setattr(engine_module, "_MAX_WINDOW_BYTES", 2)
    monkeypatch.setattr(reader_module, "_MAX_STEP_BYTES", 1 << 10)
    monkeypatch.setattr(window_module, "_MAX_RETAINED_BYTES", 1)


@pytest.mark.usefixtures("small_steps")
def test_required_step_that_is_too_large_is_refused(engines: Any) -> None:
    stream = open_stream(engines(Numbers()), 0, 1000, epochs=1)
    with pytest.raises(infeed.InvalidRequestError, match="a step of 1000 ranks of 'n' takes more"):
        stream.request(min_position_count=1000 * SLOTS).result(60)
