"""Check of a StreamBatches response: the order of messages that stream.proto defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from infeed.v1 import stream_pb2
from infeed.wire.chunk import MAX_HEAD_BYTES, parse_head

Check: TypeAlias = "Callable[[list[bytes]], str | None]"
"""Returns the problem of a call's responses, or None."""


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
    """Returns the completely answered requests. Raises `ValueError` for a wrong order."""
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
