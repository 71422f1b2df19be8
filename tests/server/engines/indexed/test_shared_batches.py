"""Tests of shared batches: each is made once for all streams that ask for it in time."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness.waiting import wait_until

from infeed.shared.errors import InfeedError, UserCodeError
from infeed_server.engines.base import HostBatch, Request, Session, Trainer
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.indexed.shared_batches import _FIELD_BYTES, _OBJECT_BYTES
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source

N = 96

BATCH_BYTES = _OBJECT_BYTES + _FIELD_BYTES + 8 * (1000 + 8 + 1)
"""Of a batch of 8 rows, with their ids and mask, without a payload."""


class Rows:
    """A data set of N rows of 1,000 bytes, whose reads can be held, or fail."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.may_read = threading.Event()
        self.may_read.set()
        self.is_broken = False
        self.bad = range(0)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        assert self.may_read.wait(60)
        self.reads.append(index)
        if self.is_broken or index in self.bad:
            raise ValueError("out of order")
        return {"x": np.full(1000, index, np.uint8)}


class Opened:
    """An engine over `Rows`."""

    def __init__(self, rows: Rows, engine: IndexedEngine, stack: ExitStack) -> None:
        self.rows, self.engine, self._stack = rows, engine, stack

    def open(
        self, slots: int = 8, rank: int = 0, world_size: int = 1, feed_id: str = ""
    ) -> Session:
        session = self.engine.open(slots, 0, Trainer(rank, world_size, feed_id))
        session.set_batch_bytes(1000 * slots)
        self._stack.callback(session.close)
        return session

    @property
    def samples(self) -> dict[str, int]:
        return dict(self.engine.shared.samples)


@pytest.fixture
def opened(tmp_path: Any) -> Iterator[Callable[..., Opened]]:
    with ExitStack() as stack:

        def make(memory: int = 1 << 30, on_error: Any = "raise") -> Opened:
            rows = Rows()
            definition = parse(
                {
                    "source": {"python": rows, "identity": "rows"},
                    "shuffle": {"seed": 5},
                    "batch": {"size": 8},
                    "on_error": on_error,
                }
            )
            plan = plan_indexed("rows", definition, open_source(definition.source))
            quarantine = Quarantine(str(tmp_path / "bad.jsonl"), "rows", on_error)
            engine = IndexedEngine(plan, quarantine, Monitor(), MemoryBudget(memory))
            stack.callback(engine.close)
            rows.reads.clear()  # those that show the fields
            return Opened(rows, engine, stack)

        yield make


def ask(session: Session, start: int, count: int = 8, slots: int = 8, seed: int = 5) -> Future[Any]:
    return session.submit(Request(seed, start, count, slots))


def read(session: Session, start: int, count: int = 8, slots: int = 8, seed: int = 5) -> HostBatch:
    batch = ask(session, start, count, slots, seed).result(60)
    session.on_sent()
    assert isinstance(batch, HostBatch)
    return batch


def content(batch: HostBatch) -> tuple[bytes, ...]:
    arrays = [batch.arrays[name].tobytes() for name in sorted(batch.arrays)]
    return (*arrays, batch.sample_ids.tobytes(), batch.mask.tobytes())


def test_batch_that_several_streams_ask_for_is_made_once(opened: Any) -> None:
    one = opened()
    sessions = [one.open() for _ in range(4)]
    for session in sessions:
        read(session, 0)  # so that all are known
    for start in range(8, N, 8):
        batches = [read(session, start) for session in sessions]
        assert len({content(batch) for batch in batches}) == 1
        assert len({id(batch.payloads) for batch in batches}) == 1
    assert one.samples == {"computed": N, "recomputed": 3 * 8, "shared": 3 * (N - 8)}
    assert len(one.rows.reads) == N + 3 * 8
    assert one.engine.shared.kept_bytes == 0  # all have passed


def test_nothing_is_kept_for_another_connection_of_a_feed(opened: Any) -> None:
    one = opened()
    connections = [one.open(feed_id="a") for _ in range(3)]
    for number, start in enumerate(range(0, N, 8)):
        read(connections[number % 3], start)
    assert one.samples == {"computed": N}
    assert one.engine.shared.kept_bytes == 0


def test_batches_are_shared_with_every_connection_of_another_feed(opened: Any) -> None:
    one = opened()
    slow = [one.open(feed_id="slow") for _ in range(3)]
    fast = [one.open(feed_id="fast") for _ in range(2)]
    read(slow[0], 0)
    for number, start in enumerate(range(8, N, 8)):
        read(fast[number % 2], start)
    slow[0].close()  # the others of the feed go on
    for number, start in enumerate(range(8, N, 8)):
        read(slow[1 + number % 2], start)
    assert one.samples == {"computed": N, "shared": N - 8}
    assert one.engine.shared.kept_bytes == 0


@pytest.mark.parametrize("leaves", [True, False])
def test_memory_of_a_batch_that_is_dropped_is_free_at_once(opened: Any, leaves: bool) -> None:
    """Not when the garbage collector looks for cycles, which may be many batches later."""
    one = opened()
    fast, slow = one.open(), one.open()
    read(slow, 0)
    gc.disable()
    try:
        array = weakref.ref(read(fast, 8).arrays["x"])
        assert array() is not None, "it is kept"
        slow.close() if leaves else read(slow, 8)
        read(fast, 16)  # the threads had the last one
        wait_until(lambda: array() is None, "the batch is freed")
    finally:
        gc.enable()


def test_batch_in_the_making_survives_the_stream_that_asked_first(opened: Any) -> None:
    one = opened()
    first, second = one.open(), one.open()
    one.rows.may_read.clear()
    lost = ask(first, 0)
    wait_until(lambda: one.engine.figures().queued_requests == 0, "the batch is in the making")
    wanted = ask(second, 0)
    first.close()
    one.rows.may_read.set()
    assert wanted.result(60).mask.all()
    assert sorted(one.rows.reads) == sorted(set(one.rows.reads))
    assert lost.done()


def test_streams_that_wait_for_a_batch_share_its_messages(opened: Any) -> None:
    one = opened(memory=1)  # which keeps none
    sessions = [one.open() for _ in range(3)]
    one.rows.may_read.clear()
    waiting = [ask(session, 0) for session in sessions]
    wait_until(lambda: one.engine.figures().queued_requests == 0, "all wait")
    one.rows.may_read.set()
    payloads = [future.result(60).payloads for future in waiting]
    assert payloads[0] is not None
    assert len(set(map(id, payloads))) == 1


def test_error_reaches_all_that_wait_and_is_not_kept(opened: Any) -> None:
    one = opened()
    sessions = [one.open() for _ in range(3)]
    one.rows.may_read.clear()
    one.rows.is_broken = True
    waiting = [ask(session, 0) for session in sessions]
    wait_until(lambda: one.engine.figures().queued_requests == 0, "all wait")
    one.rows.may_read.set()
    for future in waiting:
        with pytest.raises(InfeedError, match="out of order") as caught:
            future.result(60)
        assert isinstance(caught.value, UserCodeError)
    one.rows.is_broken = False
    assert read(sessions[0], 0).mask.all()


def test_stream_behind_what_is_kept_gets_the_same_bits_again(opened: Any) -> None:
    one = opened(memory=50_000)  # keeps two batches
    fast, slow = one.open(), one.open()
    read(slow, 0)
    batches = [content(read(fast, start)) for start in range(0, N, 8)]
    assert 0 < one.engine.shared.kept_bytes <= 2 * BATCH_BYTES
    assert [content(read(slow, start)) for start in range(0, N, 8)] == batches
    assert one.samples["recomputed"] >= N // 2
    assert one.engine.shared.kept_bytes <= 2 * BATCH_BYTES


def test_what_a_slow_stream_asks_for_next_is_kept(opened: Any) -> None:
    one = opened(memory=50_000)
    fast, slow = one.open(), one.open()
    read(slow, 0)
    for start in range(0, N, 8):
        read(fast, start)
    large, other = one.open(32), one.open(32)
    read(other, 32, 32, 32), read(large, 64, 32, 32)  # too large to be kept for the other one
    shared = one.samples.get("shared", 0)
    read(slow, 8), read(slow, 16)
    assert one.samples["shared"] == shared + 16


@pytest.mark.parametrize(
    ("size", "kept"),
    [(20_000, BATCH_BYTES + 20_000), (90_000, 0)],
)
def test_payload_counts_as_it_is(opened: Any, size: int, kept: int) -> None:
    one = opened(memory=160_000)
    fast, slow = one.open(), one.open()
    read(slow, 0)
    batch = read(fast, 8)
    assert one.engine.shared.kept_bytes == BATCH_BYTES
    for _ in range(2):  # the second time it is there
        batch.payload(True, lambda _: SimpleNamespace(size=size))
    assert one.engine.shared.kept_bytes == kept
    read(slow, 8)
    assert one.engine.shared.kept_bytes == 0
    batch.payload(False, lambda _: SimpleNamespace(size=60_000))  # by one that has it still
    assert one.engine.budget._kept == 0


def test_nothing_is_kept_for_a_stream_that_left(opened: Any) -> None:
    one = opened()
    fast, slow = one.open(), one.open()
    read(slow, 0)
    for start in range(0, N // 2, 8):
        read(fast, start)
    assert one.engine.shared.kept_bytes > 0
    slow.close()
    assert one.engine.shared.kept_bytes == 0


@pytest.mark.parametrize(
    ("streams", "is_kept"),
    [
        ([(8, 0, 1), (8, 0, 1)], True),
        ([(8, 0, 2), (8, 1, 2)], False),  # two ranks of a job never ask for the same
        ([(8, 0, 2), (8, 0, 2)], True),
        ([(8, 0, 2), (8, 1, 4)], True),  # another number of ranks
        ([(16, 0, 1), (8, 0, 2)], False),  # another size
    ],
)
def test_batches_are_kept_for_streams_that_may_ask(
    opened: Any, streams: Any, is_kept: bool
) -> None:
    one = opened()
    (slots, *_), (other, *_) = streams
    fast, slow = (one.open(*stream) for stream in streams)
    read(slow, 0, other, other)
    read(fast, 0, slots, slots), read(fast, 48, slots, slots)
    assert (one.engine.shared.kept_bytes > 0) == is_kept


@pytest.mark.parametrize("seed", [5, 6])
def test_streams_of_another_seed_share_nothing(opened: Any, seed: int) -> None:
    one = opened()
    first, second = one.open(), one.open()
    read(first, 48, seed=seed), read(second, 0), read(first, 56, seed=seed)
    assert (one.engine.shared.kept_bytes > 0) == (seed == 5)


def test_batches_of_several_sizes_have_the_same_samples(opened: Any) -> None:
    one, alone = opened(), opened()
    sessions = {size: one.open(size) for size in (64, 48, 40)}
    single = alone.open(1)
    row = [content(read(single, start, 1, 1)) for start in range(2 * N)]
    for start in range(0, 2 * N, 16):
        for size, session in sessions.items():
            count = min(size, 2 * N - start)
            batch = read(session, start, count, size)
            assert batch.mask.sum() == count
            assert batch.epoch == start // N
            expected = row[start : start + count]
            assert b"".join(x for x, *_ in expected) == batch.arrays["x"][:count].tobytes()
            assert b"".join(i for _, i, _ in expected) == batch.sample_ids[:count].tobytes()
            assert not batch.arrays["x"][count:].any()
            assert (batch.sample_ids[count:] == -1).all()


def test_stream_without_room_waits_for_shared_batches_too(opened: Any) -> None:
    one = opened(memory=1 << 20)
    fast, slow = one.open(), one.open()
    fast_answers = [ask(fast, start) for start in range(0, N, 8)]
    read(slow, 0)
    for answer in fast_answers:
        answer.result(60), fast.on_sent()
    answers = [ask(slow, start) for start in range(8, 8 * 40, 8)]
    held = partial(one.engine.budget.held_batches, one.engine.spec.name)
    wait_until(lambda: held() >= 2, "the first are taken")
    assert held() <= 16
    for answer in answers:
        answer.result(60), slow.on_sent()


def test_stream_of_a_size_too_many_leaves_no_quota(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infeed_server.engines.indexed.engine._MAX_SIZES_IN_USE", 1)
    one = opened()
    one.open(8)
    quotas = len(one.engine.budget.quotas)
    with pytest.raises(InfeedError, match="1 sizes are in use"):
        one.open(9)
    assert len(one.engine.budget.quotas) == quotas
