"""One server's part in a feed, on the test's own thread: attempts, pauses, and what ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infeed.buffers import Buffers
from infeed.errors import (
    AuthenticationError,
    FingerprintError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.handoff import HandoffClosedError
from infeed.supplier import Supplier


class Pool:
    """Lets a supplier connect so many times, and notes what it tells."""

    def __init__(self, times: int) -> None:
        self.over = False
        self.told: list[tuple[str, BaseException | None]] = []
        self.rests: list[float] = []
        self._left = times

    def enter(self, server: str) -> bool:
        self._left -= 1
        return self._left >= 0

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def lost(self, server: str, error: BaseException) -> None:
        self.told.append(("lost", error))

    def leave_out(self, server: str, error: BaseException) -> None:
        self.told.append(("left out", error))

    def failed(self, server: str, error: BaseException) -> None:
        self.told.append(("failed", error))

    def opened(self, server: str) -> None:
        self.told.append(("opened", None))

    def end(self, over: Any) -> None:
        over.set()


class Call:
    """A stream that ends, or raises, before its first message."""

    server = "host:1"

    def __init__(self, next_message: Callable[[], int | None] = lambda: None) -> None:
        self.next = next_message
        self.cancelled = self.closed = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        self.closed += 1


class Transport:
    """Opens streams by the function."""

    def __init__(self, open_stream: Callable[[], Call]) -> None:
        self._open = open_stream

    def open_stream(self, server: str, requests: Iterator[Any], draining: Any) -> Call:
        return self._open()


class Job:
    expected = None


def supplier(pool: Any, open_stream: Callable[[], Call]) -> Supplier:
    job: Any = Job()
    transport: Any = Transport(open_stream)
    return Supplier("host:1", transport, job, pool, Buffers())


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_the_pauses_between_attempts_double_up_to_a_limit() -> None:
    pool = Pool(7)
    supplier(pool, raising(ServerUnavailableError("away")))._run()
    assert pool.rests == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert [what for what, _ in pool.told] == ["lost"] * 7


def test_the_first_pause_follows_a_stream_that_was_open() -> None:
    pool = Pool(5)
    attempts: list[Supplier] = []

    def fail() -> int | None:
        attempts.append(one)
        one._was_open = len(attempts) == 3
        raise ServerUnavailableError("cut")

    one = supplier(pool, lambda: Call(fail))
    one._run()
    assert pool.rests == pytest.approx([0.05, 0.1, 0.2, 0.05, 0.1])


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
def test_one_that_does_not_suit_is_left_out_and_tried_again_much_later(error: Any) -> None:
    pool = Pool(2)
    calls: list[Call] = []

    def open_stream() -> Call:
        calls.append(Call(raising(error)))
        return calls[-1]

    supplier(pool, open_stream)._run()
    assert pool.told == [("left out", error)] * 2
    assert pool.rests == [10.0, 10.0]
    assert [call.closed for call in calls] == [1, 1]


def test_what_is_no_loss_ends_the_supplier() -> None:
    pool = Pool(9)
    error = ZeroDivisionError("mine")
    supplier(pool, lambda: Call(raising(error)))._run()
    assert pool.told == [("failed", error)]
    assert pool.rests == []


def test_a_feed_that_takes_nothing_more_ends_the_supplier_silently() -> None:
    pool = Pool(9)
    supplier(pool, lambda: Call(raising(HandoffClosedError())))._run()
    assert (pool.told, pool.rests) == ([], [])


def test_a_stream_that_ends_is_a_loss_unless_the_feed_is_over() -> None:
    pool = Pool(1)
    supplier(pool, Call)._run()
    ((what, error),) = pool.told
    assert (what, str(error)) == ("lost", "host:1 ended the stream")
    pool = Pool(1)
    pool.over = True
    supplier(pool, Call)._run()
    assert pool.told == []


def test_a_stop_while_the_stream_is_opened_cancels_it() -> None:
    pool = Pool(9)
    calls: list[Call] = []

    def open_stream() -> Call:
        one.stop()  # there is no call yet
        calls.append(Call())
        return calls[-1]

    one = supplier(pool, open_stream)
    one._run()
    assert [(call.cancelled, call.closed) for call in calls] == [(1, 1)]
    one.stop()
    assert calls[0].cancelled == 2


def test_a_stop_just_before_the_stream_is_read_cancels_it() -> None:
    call = Call()
    one = supplier(Pool(9), lambda: call)

    class Stopping(threading.Event):
        """Not set yet, whenever somebody looks for the second time; set right after."""

        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            found = super().is_set()
            if self.looks == 2:
                one.stop()
            return found

    one._stopping = Stopping()
    one._run()
    assert call.cancelled == 1


def test_a_stream_is_over_for_who_asks_before_its_call_is_closed() -> None:
    """Who asks waits for a step of the pool, and the close waits for who asks."""
    order: list[str] = []
    pool, call = Pool(1), Call()
    pool.end = lambda over: order.append("over")  # type: ignore[method-assign]
    call.close = lambda: order.append("closed")  # type: ignore[method-assign]
    supplier(pool, lambda: call)._run()
    assert order == ["over", "closed"]


def test_a_supplier_that_was_stopped_does_not_connect() -> None:
    pool = Pool(9)
    one = supplier(pool, raising(ServerUnavailableError("it connects")))
    one.stop()
    one._run()
    assert pool.told == []


def test_a_supplier_does_not_wait_for_itself() -> None:
    one = supplier(Pool(0), Call)
    one._thread = threading.current_thread()
    one.join(0)
