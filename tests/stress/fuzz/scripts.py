"""Client cases that play the bytes of a whole HTTP/2 connection."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, cast

from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import odd_number, odd_string
from tests.stress.fuzz.case import mutate, random_pieces
from tests.stress.fuzz.replies import REPLIES, run_client
from tests.stress.fuzz.sessions import Session

from infeed.http2.socket import ClientSocket
from infeed.rpc.call import GrpcCall
from infeed.rpc.credentials import Credentials
from infeed.shared.errors import BY_REASON, DOMAIN
from infeed.v1 import stream_pb2
from infeed.wire.assembler import BatchAssembler, ReceivedBatch


class _ScriptedSocket:
    """Replacement of a client socket that returns the given bytes, then the end of the stream."""

    def __init__(self, data: Sequence[bytes]) -> None:
        self._rest = [memoryview(part) for part in reversed(data) if part]

    def open(self, timeout: float) -> None:
        """Does nothing: there is no connection."""

    def receive(self, into: memoryview, timeout: float) -> int:
        if not self._rest:
            return 0
        part = self._rest.pop()
        count = min(len(part), len(into))
        into[:count] = part[:count]
        if count < len(part):
            self._rest.append(part[count:])
        return count

    def send(self, data: bytes) -> None:
        """Discards the data."""

    def abort(self) -> None:
        """Does nothing: there is no connection."""

    close = abort


class _ScriptedCredentials(Credentials):
    """Credentials whose connection returns the given bytes."""

    def __init__(self, data: Sequence[bytes]) -> None:
        super().__init__()
        object.__setattr__(self, "_data", data)

    def create_socket(self, address: str) -> ClientSocket:
        data: Sequence[bytes] = vars(self)["_data"]
        return cast("ClientSocket", _ScriptedSocket(data))


def scripted_call(data: Sequence[bytes]) -> GrpcCall:
    """Returns a call that receives the given bytes."""
    return GrpcCall(
        "fuzz:1",
        "/infeed.v1.FeedService/StreamBatches",
        iter([stream_pb2.StreamBatchesRequest()]),
        timeout=None,
        on_draining=lambda: None,
        on_closed=lambda _: None,
        credentials=_ScriptedCredentials(data),
    )


def replay_bytes(session: Session, data: list[bytes]) -> Iterator[ReceivedBatch]:
    """Yields the batches that the client decodes from a server's bytes."""
    assembler: BatchAssembler = session.assembler()
    with closing(scripted_call(data)) as call:
        while (size := call.next()) is not None:
            result = assembler.read_message(size, call.read_into)
            if isinstance(result, ReceivedBatch):
                yield result


@REPLIES.add(8)
def mutated_bytes(rng: random.Random, session: Session) -> str:
    """Plays a session with changed bytes at any level."""
    data = mutate(rng, session.stream_response)
    return run_client(session, lambda: replay_bytes(session, random_pieces(rng, data)))


@REPLIES.add(6)
def mutated_frames(rng: random.Random, session: Session) -> str:
    """Plays frames that are removed, repeated, changed in their header, or random."""
    sequence = _split_frames(session.stream_response)
    same = True  # A chunk belongs to a batch only by its position, so moved frames change values.
    for _ in range(rng.randint(1, 4)):
        index = rng.randrange(len(sequence))
        variant = rng.randrange(5)
        if variant == 0 and len(sequence) > 1:
            del sequence[index]
        elif variant == 1:
            sequence.insert(index, rng.choice(sequence))
        elif variant == 2:
            sequence[index] = mutate(rng, sequence[index][:9]) + sequence[index][9:]
        elif variant == 3:
            sequence[index : index + 2] = reversed(sequence[index : index + 2])
        else:
            sequence.insert(index, _random_frame(rng))
        same &= variant in {2, 4}
    return run_client(session, lambda: replay_bytes(session, sequence), same=same)


def _split_frames(data: bytes) -> list[bytes]:
    parts = []
    while data:
        end = 9 + int.from_bytes(data[:3], "big")
        parts.append(data[:end])
        data = data[end:]
    return parts


def _random_frame(rng: random.Random) -> bytes:
    stream = rng.choice((0, 0, 1, 1, 2, 3, rng.randrange(1 << 32)))
    body = rng.randbytes(rng.choice((0, 4, 5, 6, 8, rng.randrange(60))))
    return rng.choice(
        [
            frames.frame(rng.randrange(12), rng.randrange(256), stream, body),
            frames.frame(rng.randrange(256), rng.randrange(256), stream, body, rng.randrange(99)),
            frames.headers(stream, [(odd_string(rng)[:99] or "x", odd_string(rng)[:99])], 5),
            frames.headers(1, [("grpc-status", str(rng.randrange(20)))], 5),
            frames.frame(frames.GOAWAY, 0, 0, rng.randbytes(rng.randrange(20))),
            frames.window(0, frames.MAX_WINDOW) * 2,
            frames.setting_pairs([(rng.randrange(9), rng.randrange(1 << 32))]),
            frames.frame(frames.PUSH, 4, 1, (2).to_bytes(4, "big")),
            frames.frame(frames.HEADERS, 0, 1, body) + frames.frame(9, 0, 1, body) * 200,
            frames.frame(frames.DATA, 8, 1, b"\xff" + body),
            frames.frame(frames.PING, 0, 0, bytes(8)) * 50,
        ]
    )


@REPLIES.add(5)
def odd_ends(rng: random.Random, session: Session) -> str:
    """Plays unusual headers and trailers, with valid messages in between or without any."""
    out = [frames.settings(initial_window=1 << 20)]
    first = [(":status", rng.choice(("200", "200", "200", "404", "503", "100", "x", "")))]
    kinds = ("application/grpc", "application/grpc", "text/html", "", "application/grpc+x")
    first.append(("content-type", rng.choice(kinds)))
    is_trailers_only = rng.random() < 0.4
    last = _trailers(rng)
    if is_trailers_only:
        out.append(frames.headers(1, [*first, *last], 5))
    else:
        out.append(frames.headers(1, first, 4))
        messages = session.messages[: rng.randrange(len(session.messages))]
        data = b"".join(map(frames.message, messages))
        out += [
            frames.frame(frames.DATA, 0, 1, data[start : start + 16384])
            for start in range(0, len(data), 16384)
        ]
        out.append(frames.headers(1, last, 5))
    return run_client(session, lambda: replay_bytes(session, out))


def _trailers(rng: random.Random) -> frames.Fields:
    status = rng.choice((*map(str, range(18)), "", "-1", "00", "999", "\xb2", "x", "1" * 5000))
    details = rng.choice(
        (
            "",
            "====",
            "\xff\xfe",
            "CAUSGmluZmVlZA",
            "A" * 9000,
            _random_status(rng),
            _random_status(rng),
        )
    )
    text = rng.choice(
        ("", "%", "%zz%00%ff", "\xe9", "a" * 8000, "RST_STREAM", odd_string(rng)[:500])
    )
    fields = [
        ("grpc-status", status),
        ("grpc-message", "".join(char for char in text if " " < char < "\xff")),
        ("grpc-status-details-bin", details),
        ("x", "y"),
    ]
    return rng.sample(fields, rng.randint(0, len(fields)))


def _random_status(rng: random.Random) -> str:
    """Returns an encoded google.rpc.Status with an ErrorInfo of random content."""
    reason = rng.choice([*BY_REASON, odd_string(rng), ""])
    values: dict[str, Any] = {
        odd_string(rng)[:50]: odd_string(rng)[:50] for _ in range(rng.randrange(4))
    }
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason[:99], domain=DOMAIN, metadata=values))
    status = status_pb2.Status(
        code=odd_number(rng, 32), message=odd_string(rng)[:200], details=[detail]
    )
    data = status.SerializeToString()
    return b64encode(mutate(rng, data) if rng.random() < 0.5 else data).decode()
