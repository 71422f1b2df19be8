"""Fake server on a real socket, and client cases that connect to it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator

import hpack
from tests.harness.listener import Listener
from tests.stress.fuzz import frames
from tests.stress.fuzz.case import mutate, random_pieces
from tests.stress.fuzz.replies import REPLIES, WrongResultError, compare
from tests.stress.fuzz.sessions import Session

import infeed
from infeed.shared.errors import InfeedError
from infeed.shared.finish import finish

_HANG_TIMEOUT_SECONDS = 60.0

Respond = Callable[[str], "list[bytes] | None"]
"""Returns the response bytes for a method; None: no response, and the connection stays open."""

CountMessages = Callable[[str], int]
"""Returns the number of request messages of a method that are awaited before the response."""


class FakeServer(Listener):
    """Sends the given bytes on each connection after its first call."""

    def __init__(self, respond: Respond, count_messages: CountMessages = lambda method: 0) -> None:
        self._respond = respond
        self._count_messages = count_messages
        super().__init__(self._answer)

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the peer may disconnect at any time
            method = self._receive_call(connection)
            response = self._respond(method)
            for part in response or ():
                connection.sendall(part)
            if response is not None:
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def _receive_call(self, connection: socket.socket) -> str:
        """Returns the call's method once the awaited messages have arrived."""
        data = bytearray()
        needed: int | None = None
        while True:
            method, messages = _parse(bytes(data[len(frames.PREFACE) :]))
            if method and needed is None:
                needed = self._count_messages(method)
            if needed is not None and messages >= needed:
                return method
            received = connection.recv(1 << 16)
            if not received:
                raise ConnectionAbortedError
            data += received


def _parse(data: bytes) -> tuple[str, int]:
    """Returns the called method, empty if not yet known, and the number of its messages."""
    path, body = "", b""
    while len(data) >= 9:
        end = 9 + int.from_bytes(data[:3], "big")
        if len(data) < end:
            break
        if data[3] == frames.HEADERS:
            path = dict(hpack.Decoder().decode(data[9:end])).get(":path", "")
        elif data[3] == frames.DATA:
            body += data[9:end]
        data = data[end:]
    return path.rpartition("/")[2], _count(body)


def _count(body: bytes) -> int:
    """Returns the number of complete messages in gRPC's framing."""
    count = offset = 0
    while (offset := offset + 5) <= len(body) and (
        offset := offset + int.from_bytes(body[offset - 4 : offset], "big")
    ) <= len(body):
        count += 1
    return count


@REPLIES.add(2)
def mutated_connections(rng: random.Random, session: Session) -> str:
    """Runs `connect` and a feed against a session with changed bytes."""
    mutated_method = rng.choice(("GetPipeline", "StreamBatches", "StreamBatches", "StreamBatches"))
    lock = threading.Lock()

    def respond(method: str) -> list[bytes]:
        data = session.pipeline_response if method == "GetPipeline" else session.stream_response
        with lock:
            sent = mutate(rng, data) if method == mutated_method else data
            return random_pieces(rng, sent, 3)

    first = iter([_messages(session)])

    def count_messages(method: str) -> int:
        # A feed requests all its batches once. After a lost connection it requests the missing
        # ones, and after a changed pipeline description any.
        is_known = method == "StreamBatches" == mutated_method
        return next(first, _one)(method) if is_known else 1

    with FakeServer(respond, count_messages) as fake:
        return read_feed(fake.address, session)


@REPLIES.add(0.5)
def good_connections(rng: random.Random, session: Session) -> str:
    """Runs a feed against an unchanged session, which must succeed."""

    def respond(method: str) -> list[bytes]:
        return random_pieces(
            rng, session.pipeline_response if method == "GetPipeline" else session.stream_response
        )

    if session.contract.payload_bytes is None:
        return "asks for less at a time than was recorded"
    with FakeServer(respond, _messages(session)) as fake:
        outcome = read_feed(fake.address, session, timeout=_HANG_TIMEOUT_SECONDS)
    if outcome != "whole":
        raise WrongResultError(f"an unchanged session ends with {outcome}")
    return outcome


def _one(method: str) -> int:
    return 1


def _messages(session: Session) -> CountMessages:
    """Returns a feed's message count: all its requests if it knows their size, else two."""
    steps = 2 if session.contract.payload_bytes is None else session.steps
    return lambda method: 1 if method == "GetPipeline" else 1 + steps


def read_feed(address: str, session: Session, timeout: float = 0.3) -> str:
    """Returns the outcome of a feed of the session. Raises `WrongResultError` for wrong batches."""
    count = 0
    try:
        with infeed.connect(
            address,
            session.spec.name,
            epochs=1,
            remainder="pad",
            timeout=timeout,
            reconnect_timeout=0.2,
        ) as feed:
            for batch in _batches(feed):
                if count not in session.batches:
                    raise WrongResultError(f"{count + 1} batches of {session.steps}")
                _compare(session, feed, count, batch)
                count += 1
    except InfeedError as error:
        return type(error).__name__
    return "whole" if count == session.steps else "ended"


def _batches(feed: infeed.Feed) -> Iterator[infeed.Batch]:
    while True:
        try:
            yield feed.next(timeout=_HANG_TIMEOUT_SECONDS)
        except StopIteration:
            return
        except infeed.StallError as error:
            if error.metadata.get("seconds") == f"{_HANG_TIMEOUT_SECONDS:g}":
                raise WrongResultError(f"the feed hangs: {error}") from error
            raise


def _compare(session: Session, feed: infeed.Feed, step: int, batch: infeed.Batch) -> None:
    """Compares a feed's batch with the expected one, after the finish transforms."""
    expected = session.batches[step]
    if feed.spec != session.spec:  # the pipeline description has no checksum
        return
    arrays = finish(dict(expected), session.spec.finish_transforms, batch.mask)
    compare(session, step, batch, same=True, expected=expected.replaced(arrays))
