"""Client cases that play the bytes of a whole HTTP/2 connection."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import cast

from google.rpc import error_details_pb2, status_pb2
from tests.stress.fuzz import frames
from tests.stress.fuzz.odd import mutate, odd_number, odd_string, random_pieces
from tests.stress.fuzz.replies import reply, run_client
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
        return cast("ClientSocket", _ScriptedSocket(vars(self)["_data"]))


def replay_bytes(session: Session, data: list[bytes]) -> Iterator[ReceivedBatch]:
    """Yields the batches that the client decodes from a server's bytes."""
    assembler: BatchAssembler = session.assembler()
    call = GrpcCall(
        "fuzz:1",
        "/infeed.v1.FeedService/StreamBatches",
        iter([stream_pb2.StreamBatchesRequest()]),
        timeout=None,
        on_draining=lambda: None,
        credentials=_ScriptedCredentials(data),
    )
    with closing(call):
        while (size := call.next()) is not None:
            result = assembler.read_message(size, call.read_into)
            if isinstance(result, ReceivedBatch):
                yield result


@reply
def mutated_bytes(rng: random.Random, session: Session) -> str:
    """Plays a session with changed bytes at any level."""
    data = mutate(rng, session.stream_response)
    return run_client(session, lambda: replay_bytes(session, random_pieces(rng, data)))


@reply
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
    details = ("", "====", "\xff\xfe", "CAUSGmluZmVlZA", "A" * 9000, *[_random_status(rng)] * 2)
    text = rng.choice(
        ("", "%", "%zz%00%ff", "\xe9", "a" * 8000, "RST_STREAM", odd_string(rng)[:500])
    )
    fields = [
        ("grpc-status", status),
        ("grpc-message", "".join(char for char in text if " " < char < "\xff")),
        ("grpc-status-details-bin", rng.choice(details)),
        ("x", "y"),
    ]
    return rng.sample(fields, rng.randint(0, len(fields)))


def _random_status(rng: random.Random) -> str:
    """Returns an encoded google.rpc.Status with an ErrorInfo of random content."""
    info = error_details_pb2.ErrorInfo(reason=rng.choice([*BY_REASON, ""]), domain=DOMAIN)
    info.metadata[odd_string(rng)[:50]] = odd_string(rng)[:50]
    status = status_pb2.Status(code=odd_number(rng, 32), message=odd_string(rng)[:200])
    status.details.add().Pack(info)
    data = status.SerializeToString()
    return b64encode(mutate(rng, data) if rng.random() < 0.5 else data).decode()
