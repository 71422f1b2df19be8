"""Runner of many concurrent calls over a few connections of grpcio's client."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
from tests.stress.fuzz.calls import Call

HANG_TIMEOUT_SECONDS = 120.0
"""Time after which a call counts as hanging: its status is then not an allowed one."""

_CONNECTIONS = 4
CONCURRENT_CALLS = 32

_LIMIT_TEXTS = {
    "UNAVAILABLE": "jobs that read at different positions",
    "RESOURCE_EXHAUSTED": "health calls open already",
}
"""Parts of messages that depend on the concurrent calls: the most readers of a sequential data set,
and the most health calls of a host."""


class CallRunner:
    """Runs calls, many concurrently. A context manager."""

    def __init__(self, address: str) -> None:
        with ExitStack() as stack:
            self._channels = [
                stack.enter_context(grpc.insecure_channel(address, [("number", number)]))
                for number in range(_CONNECTIONS)
            ]
            self._pool = stack.enter_context(ThreadPoolExecutor(CONCURRENT_CALLS))
            self._stack = stack.pop_all()

    def __enter__(self) -> CallRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def problems(self, calls: Sequence[Call]) -> list[str]:
        """Runs the calls until each has ended; returns their problems."""
        problems = self._pool.map(_problem, itertools.cycle(self._channels), calls)
        return [problem for problem in problems if problem is not None]


def _problem(channel: grpc.Channel, call: Call) -> str | None:
    """Makes a call; returns its problem."""
    code, details, responses = _outcome(channel, call)
    is_left = code == "CANCELLED" and call.cancel_after_seconds is not None
    at_limit = code in _LIMIT_TEXTS and _LIMIT_TEXTS[code] in details
    if not (is_left or at_limit or code in call.codes):
        return f"{call}: {code} ({details[:300]})"
    problem = call.check(responses) if call.check is not None else None
    return problem and f"{call}: {problem}"


def _outcome(channel: grpc.Channel, call: Call) -> tuple[str, str, list[bytes]]:
    """Returns the status, its details, and the responses."""
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        yield from call.messages
        if not call.end:
            ended.wait()

    method: Any = channel.stream_stream(call.method)
    running = method(requests(), timeout=HANG_TIMEOUT_SECONDS)
    if call.cancel_after_seconds is not None:
        timer = threading.Timer(call.cancel_after_seconds, running.cancel)
        timer.daemon = True
        timer.start()
    responses: list[bytes] = []
    try:
        responses.extend(running)
    except grpc.RpcError as error:
        status: Any = error
        return status.code().name, status.details() or "", responses
    finally:
        ended.set()
    return "OK", "", responses
