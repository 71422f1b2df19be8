"""Cases against the client in which a whole connection is played, HTTP/2 and all."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import numbers, strings
from tests.stress.fuzz.case import mutated, pieces
from tests.stress.fuzz.replies import REPLIES, judged
from tests.stress.fuzz.sessions import Session

from infeed.assembly import Assembler, Received
from infeed.call import GrpcCall
from infeed.credentials import Credentials
from infeed.errors import BY_REASON, DOMAIN
from infeed.v1 import stream_pb2


class _Script:
    """In a link's place: says what it is told to, then nothing more."""

    def __init__(self, said: Sequence[bytes]) -> None:
        self._rest = [memoryview(part) for part in reversed(said) if part]

    def open(self, timeout: float) -> None:
        """There at once."""

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
        """Nobody listens."""

    def cut(self) -> None:
        """Nothing to end."""

    close = cut


@dataclass(frozen=True)
class _Scripted(Credentials):
    """Of a server that says what it is told to, on whatever connection."""

    said: tuple[bytes, ...] = ()

    def link(self, address: str, name: str) -> Any:
        return _Script(self.said)


def scripted(said: Sequence[bytes]) -> GrpcCall:
    """A call whose server says that, whatever it is asked."""
    return GrpcCall(
        "fuzz:1",
        "/infeed.v1.FeedService/StreamBatches",
        iter([stream_pb2.StreamBatchesRequest()]),
        timeout=None,
        draining=lambda: None,
        closed=lambda _: None,
        credentials=_Scripted(said=tuple(said)),
    )


def played(session: Session, said: list[bytes]) -> Iterator[Received]:
    """What the whole of the client makes of bytes from a server."""
    assembler: Assembler = session.assembler()
    with closing(scripted(said)) as call:
        while (size := call.next()) is not None:
            done = assembler.take(size, call.read_into)
            if isinstance(done, Received):
                yield done


@REPLIES.add(8)
def mutated_bytes(rng: random.Random, session: Session) -> str:
    """The whole session's bytes, HTTP/2 and all."""
    data = mutated(rng, session.streamed)
    return judged(session, lambda: played(session, pieces(rng, data)))


@REPLIES.add(6)
def mutated_frames(rng: random.Random, session: Session) -> str:
    """Frames that are left out, said twice, changed in their head, or strangers."""
    known = _frames(session.streamed)
    in_place = True  # what is at another place is right there too: its place is all that tells
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(known))
        way = rng.randrange(5)
        if way == 0 and len(known) > 1:
            del known[at]
        elif way == 1:
            known.insert(at, rng.choice(known))
        elif way == 2:
            known[at] = mutated(rng, known[at][:9]) + known[at][9:]
        elif way == 3:
            known[at : at + 2] = reversed(known[at : at + 2])
        else:
            known.insert(at, _stranger(rng))
        in_place &= way in {2, 4}
    return judged(session, lambda: played(session, known), same=in_place)


def _frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 9 + int.from_bytes(data[:3], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def _stranger(rng: random.Random) -> bytes:
    stream = rng.choice((0, 0, 1, 1, 2, 3, rng.randrange(1 << 32)))
    body = rng.randbytes(rng.choice((0, 4, 5, 6, 8, rng.randrange(60))))
    return rng.choice(
        [
            frames.frame(rng.randrange(12), rng.randrange(256), stream, body),
            frames.frame(rng.randrange(256), rng.randrange(256), stream, body, rng.randrange(99)),
            frames.headers(stream, [(strings(rng)[:99] or "x", strings(rng)[:99])], 5),
            frames.headers(1, [("grpc-status", str(rng.randrange(20)))], 5),
            frames.frame(frames.GOAWAY, 0, 0, rng.randbytes(rng.randrange(20))),
            frames.window(0, frames.MOST) * 2,
            frames.setting_pairs([(rng.randrange(9), rng.randrange(1 << 32))]),
            frames.frame(frames.PUSH, 4, 1, (2).to_bytes(4, "big")),
            frames.frame(frames.HEADERS, 0, 1, body) + frames.frame(9, 0, 1, body) * 200,
            frames.frame(frames.DATA, 8, 1, b"\xff" + body),
            frames.frame(frames.PING, 0, 0, bytes(8)) * 50,
        ]
    )


@REPLIES.add(5)
def odd_ends(rng: random.Random, session: Session) -> str:
    """Headers and trailers of all kinds around nothing, or around good messages."""
    out = [frames.settings(initial_window=1 << 20)]
    first = [(":status", rng.choice(("200", "200", "200", "404", "503", "100", "x", "")))]
    kinds = ("application/grpc", "application/grpc", "text/html", "", "application/grpc+x")
    first.append(("content-type", rng.choice(kinds)))
    alone = rng.random() < 0.4
    told = _trailers(rng)
    out.append(frames.headers(1, [*first, *told] if alone else first, 5 if alone else 4))
    if not alone:
        some = session.messages[: rng.randrange(len(session.messages))]
        data = b"".join(map(frames.message, some))
        out += [
            frames.frame(frames.DATA, 0, 1, data[at : at + 16384])
            for at in range(0, len(data), 16384)
        ]
        out.append(frames.headers(1, told, 5))
    return judged(session, lambda: played(session, out))


def _trailers(rng: random.Random) -> frames.Fields:
    status = rng.choice((*map(str, range(18)), "", "-1", "00", "999", "\xb2", "x", "1" * 5000))
    details = rng.choice(
        (
            "",
            "====",
            "\xff\xfe",
            "CAUSGmluZmVlZA",
            "A" * 9000,
            _status_of(rng),
            _status_of(rng),
        )
    )
    text = rng.choice(("", "%", "%zz%00%ff", "\xe9", "a" * 8000, "RST_STREAM", strings(rng)[:500]))
    fields = [
        ("grpc-status", status),
        ("grpc-message", "".join(char for char in text if " " < char < "\xff")),
        ("grpc-status-details-bin", details),
        ("x", "y"),
    ]
    return rng.sample(fields, rng.randint(0, len(fields)))


def _status_of(rng: random.Random) -> str:
    """Of google.rpc.Status, with an ErrorInfo of ours whose parts are anything."""
    reason = rng.choice([*BY_REASON, strings(rng), ""])
    values: dict[str, Any] = {strings(rng)[:50]: strings(rng)[:50] for _ in range(rng.randrange(4))}
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason[:99], domain=DOMAIN, metadata=values))
    status = status_pb2.Status(code=numbers(rng, 32), message=strings(rng)[:200], details=[detail])
    data = status.SerializeToString()
    return b64encode(mutated(rng, data) if rng.random() < 0.5 else data).decode()
