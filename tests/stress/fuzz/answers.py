"""What stream.proto says of the order of a server's messages, held against an answer."""

from __future__ import annotations

from tests.stress.fuzz.calls import Check
from tests.stress.fuzz.peer import Answer

from infeed.chunk import HEAD_BYTES, read_head
from infeed.v1 import stream_pb2


def ordered(asked: list[int], *, whole: bool = True) -> Check:
    """The answer is what stream.proto draws, for these requests; all of them where `whole`."""

    def check(answer: Answer) -> str | None:
        try:
            answered = _answered(bytes(answer.data))
        except (ValueError, IndexError) as error:
            return f"the answer is none: {error}"
        if answered != asked[: len(answered)] or (whole and len(answered) < len(asked)):
            return f"answers to {answered}, where {asked} were asked for"
        return None

    return check


def _answered(data: bytes) -> list[int]:
    """The requests that were answered whole. Raises `ValueError` for a wrong order."""
    answered: list[int] = []
    left: int | None = None
    opened = False
    at = 0
    while at + 5 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        body = data[at + 5 : at + 5 + size]
        at += 5 + size
        if len(body) < size:
            break
        if head := read_head(body[:HEAD_BYTES], size):
            if not left or head.data_bytes > left:
                raise ValueError("a chunk too many")
            left -= head.data_bytes
            continue
        answer = stream_pb2.StreamBatchesResponse.FromString(body)
        kind = answer.WhichOneof("event")
        if kind != "heartbeat" and left:
            raise ValueError(f"{kind} inside of a batch")
        if (kind == "opened") == opened and kind != "heartbeat":
            raise ValueError(f"{kind} at the wrong place")
        if kind == "opened":
            opened = True
        elif kind == "header":
            answered.append(answer.header.request_id)
            left = answer.header.payload_size
        elif kind == "end":
            answered.append(answer.end.request_id)
    if left:
        answered.pop()
    return answered
