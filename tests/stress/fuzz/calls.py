"""gRPC calls of the server's fuzzing: their requests, their allowed outcomes, and their runner."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc

from infeed.rpc.status import CODES
from infeed.v1 import stream_pb2
from infeed.wire.chunk import MAX_HEAD_BYTES, parse_head

HANG_TIMEOUT_SECONDS = 120.0
"""Time after which a call counts as hanging: its status is then not an allowed one."""

CONCURRENT_CALLS = 32
_CONNECTIONS = 4

ALLOWED_CODES = frozenset(CODES) - {"UNKNOWN", "INTERNAL"}
"""Allowed status codes by default; the other two mean an unexpected error in the server."""

_LIMIT_TEXTS = {
    "UNAVAILABLE": "jobs that read at different positions",
    "RESOURCE_EXHAUSTED": " open health calls",
}
"""Parts of messages that depend on the concurrent calls: the most readers of a sequential data set,
and the most health calls of a host."""

Check: TypeAlias = "Callable[[list[bytes]], str | None]"
"""Returns the problem of a call's responses, or None."""


@dataclass
class Call:
    """Request of one call, and its allowed outcomes."""

    method: str
    messages: list[bytes] = field(default_factory=list)
    codes: frozenset[str] = ALLOWED_CODES
    check: Check | None = None
    cancel_after_seconds: float | None = None
    """Time after which the call is cancelled; None: the server must end it."""
    end: bool = True
    """Whether the request ends after the messages."""


def problems(address: str, calls: Sequence[Call]) -> list[str]:
    """Runs calls, many concurrently, until each has ended; returns their problems."""
    with ExitStack() as stack:
        channels = [
            stack.enter_context(grpc.insecure_channel(address, [("number", number)]))
            for number in range(_CONNECTIONS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(CONCURRENT_CALLS))
        return [found for found in pool.map(_problem, itertools.cycle(channels), calls) if found]


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


def in_order(requested: list[int], *, complete: bool = True) -> Check:
    """Returns a check that the response answers these requests in order; all if `complete`."""

    def check(responses: list[bytes]) -> str | None:
        try:
            answered = _answered_requests(responses)
        except (ValueError, IndexError) as error:
            return f"a response is invalid: {error}"
        if answered != requested[: len(answered)] or (complete and len(answered) < len(requested)):
            return f"answered requests {answered} of {requested}"
        return None

    return check


def _answered_requests(responses: list[bytes]) -> list[int]:
    """Returns the completely answered requests. Raises `ValueError` for another order than
    stream.proto defines."""
    answered: list[int] = []
    missing: int | None = None
    is_open = False
    for body in responses:
        if head := parse_head(body[:MAX_HEAD_BYTES], len(body)):
            if not missing or head.data_size > missing:
                raise ValueError("a chunk exceeds the batch's payload")
            missing -= head.data_size
            continue
        message = stream_pb2.StreamBatchesResponse.FromString(body)
        kind = message.WhichOneof("event")
        if kind != "heartbeat" and missing:
            raise ValueError(f"{kind} within a batch")
        if (kind == "opened") == is_open and kind != "heartbeat":
            raise ValueError(f"{kind} out of order")
        if kind == "opened":
            is_open = True
        elif kind == "header":
            answered.append(message.header.request_id)
            missing = message.header.payload_size
        elif kind == "end":
            answered.append(message.end.request_id)
    if missing:
        answered.pop()
    return answered
