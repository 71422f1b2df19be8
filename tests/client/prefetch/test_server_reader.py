"""Server reader, run on the test's thread: reconnects, backoff, errors and stopping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infeed.errors import (
    AuthenticationError,
    FingerprintError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.prefetch.closable_queue import QueueClosedError
from infeed.prefetch.server_reader import ServerReader
from infeed.wire.buffer_pool import BufferPool


class Pool:
    """A server pool that allows a number of attempts to connect, and records the calls."""

    def __init__(self, attempts: int) -> None:
        self.ended = False
        self.events: list[tuple[str, BaseException | None]] = []
        self.backoffs: list[float] = []
        self._attempts = attempts

    def wait_for_turn(self, server: str) -> bool:
        self._attempts -= 1
        return self._attempts >= 0

    def backoff(self, seconds: float) -> None:
        self.backoffs.append(seconds)

    def on_connection_lost(self, server: str, error: BaseException) -> None:
        self.events.append(("lost", error))

    def exclude(self, server: str, error: BaseException) -> None:
        self.events.append(("excluded", error))

    def on_batch_failed(self, server: str, error: BaseException) -> None:
        self.events.append(("failed", error))

    def on_stream_opened(self, server: str) -> None:
        self.events.append(("opened", None))

    def end_stream(self, stream_ended: Any) -> None:
        stream_ended.set()


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
    contract = None


def reader_of(pool: Any, open_stream: Callable[[], Call]) -> ServerReader:
    plan: Any = Plan()
    transport: Any = Transport(open_stream)
    return ServerReader("host:1", transport, plan, pool, BufferPool())


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_backoff_doubles_up_to_a_limit() -> None:
    pool = Pool(7)
    reader_of(pool, raising(ServerUnavailableError("away")))._run()
    assert pool.backoffs == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert [event for event, _ in pool.events] == ["lost"] * 7


def test_backoff_is_reset_by_an_opened_stream() -> None:
    pool = Pool(5)
    attempts: list[ServerReader] = []

    def fail() -> int | None:
        attempts.append(reader)
        reader._stream_opened = len(attempts) == 3
        raise ServerUnavailableError("cut")

    reader = reader_of(pool, lambda: Call(fail))
    reader._run()
    assert pool.backoffs == pytest.approx([0.05, 0.1, 0.2, 0.05, 0.1])


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("a"),
        FingerprintError("b"),
        PermissionDeniedError("c"),
        PipelineNotFoundError("d"),
        ProtocolError("e"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_excluding_error_leads_to_a_late_retry(error: Any) -> None:
    pool = Pool(2)
    calls: list[Call] = []

    def open_stream() -> Call:
        calls.append(Call(raising(error)))
        return calls[-1]

    reader_of(pool, open_stream)._run()
    assert pool.events == [("excluded", error)] * 2
    assert pool.backoffs == [10.0, 10.0]
    assert [call.closed for call in calls] == [1, 1]


def test_other_error_fails_the_batch_and_ends_the_reader() -> None:
    pool = Pool(9)
    error = ZeroDivisionError("mine")
    reader_of(pool, lambda: Call(raising(error)))._run()
    assert pool.events == [("failed", error)]
    assert pool.backoffs == []


def test_closed_queue_ends_the_reader_silently() -> None:
    pool = Pool(9)
    reader_of(pool, lambda: Call(raising(QueueClosedError())))._run()
    assert (pool.events, pool.backoffs) == ([], [])


def test_end_of_the_stream_is_a_loss_unless_the_feed_ended() -> None:
    pool = Pool(1)
    reader_of(pool, Call)._run()
    ((event, error),) = pool.events
    assert (event, str(error)) == ("lost", "host:1 ended the stream")
    pool = Pool(1)
    pool.ended = True
    reader_of(pool, Call)._run()
    assert pool.events == []


def test_stop_while_the_stream_is_opened_cancels_it() -> None:
    pool = Pool(9)
    calls: list[Call] = []

    def open_stream() -> Call:
        reader.stop()  # there is no call yet
        calls.append(Call())
        return calls[-1]

    reader = reader_of(pool, open_stream)
    reader._run()
    assert [(call.cancelled, call.closed) for call in calls] == [(1, 1)]
    reader.stop()
    assert calls[0].cancelled == 2


def test_stop_just_before_the_stream_is_read_cancels_it() -> None:
    call = Call()
    reader = reader_of(Pool(9), lambda: call)

    class Stopping(threading.Event):
        """Calls `stop` between the second check of the event and its result."""

        checks = 0

        def is_set(self) -> bool:
            self.checks += 1
            result = super().is_set()
            if self.checks == 2:
                reader.stop()
            return result

    reader._stopping = Stopping()
    reader._run()
    assert call.cancelled == 1


def test_requests_are_ended_before_the_call_is_closed() -> None:
    """Closing waits for the request thread, which may be waiting in the pool for a step."""
    order: list[str] = []
    pool, call = Pool(1), Call()
    pool.end_stream = lambda ended: order.append("ended")  # type: ignore[method-assign]
    call.close = lambda: order.append("closed")  # type: ignore[method-assign]
    reader_of(pool, lambda: call)._run()
    assert order == ["ended", "closed"]


def test_stopped_reader_does_not_connect() -> None:
    pool = Pool(9)
    reader = reader_of(pool, raising(ServerUnavailableError("connected")))
    reader.stop()
    reader._run()
    assert pool.events == []


def test_join_on_the_own_thread_returns_at_once() -> None:
    reader = reader_of(Pool(0), Call)
    reader._thread = threading.current_thread()
    reader.join(0)
