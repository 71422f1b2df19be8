"""Server reader, run on the test's thread: its streams, errors and stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.client.plans import plan_of

from infeed.prefetch.reporter import ThreadMeter
from infeed.prefetch.server_reader import ServerReader, Shared
from infeed.prefetch.stream import Stream
from infeed.shared.errors import ProtocolError, ServerUnavailableError
from infeed.testing import FakeTransport
from infeed.wire.buffer_pool import BufferPool
from infeed.wire.received import EndOfData, ReceivedBatch


class Pool:
    """A server pool and coordinator that allow a number of streams, and record their ends."""

    def __init__(self, attempts: int) -> None:
        self.ended = self.closed = self.overdue = False
        self.errors: list[BaseException] = []
        self.streams: list[Stream] = []
        self._attempts = attempts

    def wait_for_turn(self, server: str, number: int) -> Stream | None:
        if len(self.streams) == self._attempts:
            return None
        self.streams.append(Stream(server, number))
        return self.streams[-1]

    @contextmanager
    def locked(self) -> Iterator[Any]:
        yield self

    def on_stream_ended(self, stream: Stream, error: BaseException) -> None:
        assert stream is self.streams[-1]
        self.errors.append(error)

    def is_overdue(self, stream: Stream) -> bool:
        return self.overdue


class Call:
    """A stream that ends or fails before its first message."""

    server = "host:1"

    def __init__(self, next_message: Callable[[], int | None] = lambda: None) -> None:
        self.next = next_message
        self.cancelled = self.closed = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        self.closed += 1


class Transport:
    """A transport that opens streams with a function."""

    def __init__(self, open_stream: Callable[[], Call]) -> None:
        self._open = open_stream

    def open_stream(self, server: str, requests: Iterator[Any], on_draining: Any) -> Call:
        return self._open()


class Plan:
    def contract_with(self, server: str) -> None: ...

    def connections_to(self, server: str) -> int:
        return 1


def reader_of(pool: Any, open_stream: Callable[[], Call]) -> ServerReader:
    plan: Any = Plan()
    transport: Any = Transport(open_stream)
    reporter: Any = SimpleNamespace(new_meter=ThreadMeter)
    return ServerReader("host:1", Shared(transport, plan, pool, BufferPool(), reporter))


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_each_error_ends_one_stream() -> None:
    pool = Pool(2)
    error = ZeroDivisionError("mine")
    calls: list[Call] = []

    def open_stream() -> Call:
        calls.append(Call(raising(error)))
        return calls[-1]

    reader_of(pool, open_stream)._read_streams()
    assert pool.errors == [error, error]
    assert [call.closed for call in calls] == [1, 1]
    pool = Pool(2)
    reader_of(pool, raising(error))._read_streams()
    assert pool.errors == [error, error]


def test_end_of_the_stream_is_a_loss_unless_the_feed_ended() -> None:
    pool = Pool(1)
    reader_of(pool, Call)._read_streams()
    (error,) = pool.errors
    assert isinstance(error, ServerUnavailableError)
    assert str(error) == "host:1 ended the stream"
    pool = Pool(1)
    pool.ended = True
    reader_of(pool, Call)._read_streams()
    assert pool.errors == []


def test_stop_before_there_is_a_call_cancels_it() -> None:
    def open_stream() -> Call:
        reader.stop()
        return call

    pool, call = Pool(1), Call()
    reader = reader_of(pool, open_stream)
    reader._read_streams()
    assert call.cancelled == 1


def test_stream_takes_no_requests_when_its_call_is_closed() -> None:
    """`close` waits for the thread that sends requests."""
    pool, call = Pool(1), Call()
    ended = []
    call.close = lambda: ended.append(pool.streams[0].ended)  # type: ignore[method-assign]
    reader_of(pool, lambda: call)._read_streams()
    assert ended == [True]


def test_stream_whose_announced_end_does_not_come_is_cancelled() -> None:
    pool = Pool(1)
    steps = [False, True]

    def next_message() -> int | None:
        pool.streams[0].draining = True
        for pool.overdue in steps:
            reader.cancel_overdue()
        raise ServerUnavailableError("the call was cancelled")

    call = Call(next_message)
    reader = reader_of(pool, lambda: call)
    reader.cancel_overdue()  # there is no stream yet
    reader._read_streams()
    assert call.cancelled == 1
    (error,) = pool.errors
    assert isinstance(error, ServerUnavailableError)


def test_connections_share_the_time_of_receiving() -> None:
    """Else several of them would report more than the time that has passed."""
    reader = reader_of(Pool(1), Call)
    reader._plan = plan_of(FakeTransport({"x": np.arange(8)}, batch_size=4).spec, epochs=1)
    reader._connections = 4
    pool: Any = reader._pool
    pool.on_batch = lambda stream, received: None
    batch: Any = None
    reader._on_answer(Stream("host:1"), ReceivedBatch(0, batch, 32, receive_seconds=2.0))
    assert reader._meter.receive_seconds == 0.5


@pytest.mark.parametrize(("length_known", "count"), [(True, 3), (False, 4), (False, -1)])
def test_end_of_the_data_that_does_not_fit_the_step_is_refused(
    length_known: bool, count: int
) -> None:
    """Else the feed would end early, as if it were complete."""
    fake = FakeTransport({"x": np.arange(50)}, batch_size=4, length_known=length_known)
    reader = reader_of(Pool(1), Call)
    reader._plan = plan_of(fake.spec, epochs=1, remainder="drop")
    with pytest.raises(ProtocolError, match=f"unexpected end of the data at position {count}"):
        reader._on_answer(Stream("host:1"), EndOfData(0, count))
