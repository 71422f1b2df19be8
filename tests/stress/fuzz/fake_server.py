"""Fake server on a real socket, and cases in which a feed connects to it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator

import hpack
from tests.harness.listener import Listener
from tests.stress.fuzz import frames
from tests.stress.fuzz.case import mutated, pieces
from tests.stress.fuzz.replies import REPLIES, WrongError, compare
from tests.stress.fuzz.sessions import Session

import infeed
from infeed.errors import InfeedError

_HANG_SECONDS = 60.0

Respond = Callable[[str], "list[bytes] | None"]
"""Returns the bytes sent to a call of a method; None: nothing, for as long as the peer stays."""

CountMessages = Callable[[str], int]
"""Returns the number of messages of a call to a method that are awaited before the response."""


class FakeServer(Listener):
    """Sends what it is told to each connection, once that has made a call."""

    def __init__(self, respond: Respond, count_messages: CountMessages = lambda method: 0) -> None:
        self._respond = respond
        self._count_messages = count_messages
        super().__init__(self._answer)

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a peer may leave as it likes
            method = self._receive_call(connection)
            response = self._respond(method)
            for part in response or ():
                connection.sendall(part)
            if response is not None:
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def _receive_call(self, connection: socket.socket) -> str:
        """Returns the last part of the call's path once its messages have come."""
        data = bytearray()
        needed: int | None = None
        while True:
            method, messages = _parse(bytes(data[len(frames.PREFACE) :]))
            if method and needed is None:
                needed = self._count_messages(method)
            if needed is not None and messages >= needed:
                return method
            more = connection.recv(1 << 16)
            if not more:
                raise ConnectionAbortedError
            data += more


def _parse(data: bytes) -> tuple[str, int]:
    """Returns the method that is called, if that is known yet, and the number of its messages."""
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
    """Returns the number of whole messages in gRPC's framing."""
    count = at = 0
    while (at := at + 5) <= len(body) and (
        at := at + int.from_bytes(body[at - 4 : at], "big")
    ) <= len(body):
        count += 1
    return count


@REPLIES.add(2)
def mutated_connections(rng: random.Random, session: Session) -> str:
    """All of `connect` and the feed against a session whose bytes are changed."""
    spoiled = rng.choice(("GetPipeline", "StreamBatches", "StreamBatches", "StreamBatches"))
    lock = threading.Lock()

    def respond(method: str) -> list[bytes]:
        data = session.described if method == "GetPipeline" else session.streamed
        with lock:
            bad = mutated(rng, data) if method == spoiled else data
            return pieces(rng, bad, 3)

    first = iter([_messages(session)])

    def count_messages(method: str) -> int:
        # A feed asks for all its batches once; after a lost connection for those that it lacks,
        # and after a spoiled description for any.
        is_known = method == "StreamBatches" == spoiled
        return next(first, _one)(method) if is_known else 1

    with FakeServer(respond, count_messages) as fake:
        return read(fake.address, session)


@REPLIES.add(0.5)
def good_connections(rng: random.Random, session: Session) -> str:
    """Nothing is changed: that the others fail must be for what was changed."""

    def respond(method: str) -> list[bytes]:
        return pieces(rng, session.described if method == "GetPipeline" else session.streamed)

    if session.expected.payload_bytes is None:
        return "asks for less at a time than was recorded"
    with FakeServer(respond, _messages(session)) as fake:
        how = read(fake.address, session, timeout=_HANG_SECONDS)
    if how != "whole":
        raise WrongError(f"a good session ends with {how}")
    return how


def _one(method: str) -> int:
    return 1


def _messages(session: Session) -> CountMessages:
    """A feed asks for all batches at once where it knows their size, else for two."""
    steps = 2 if session.expected.payload_bytes is None else session.steps
    return lambda method: 1 if method == "GetPipeline" else 1 + steps


def read(address: str, session: Session, timeout: float = 0.3) -> str:
    """Returns how a feed of the session ends. Raises `WrongError` for wrong batches."""
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
                    raise WrongError(f"{count + 1} batches of {session.steps}")
                _compare(session, feed, count, batch)
                count += 1
    except InfeedError as error:
        return type(error).__name__
    return "whole" if count == session.steps else "ended"


def _batches(feed: infeed.Feed) -> Iterator[infeed.Batch]:
    while True:
        try:
            yield feed.next(timeout=_HANG_SECONDS)
        except StopIteration:
            return
        except infeed.StallError as error:
            if error.metadata.get("seconds") == f"{_HANG_SECONDS:g}":
                raise WrongError(f"the feed hangs: {error}") from error
            raise


def _compare(session: Session, feed: infeed.Feed, step: int, batch: infeed.Batch) -> None:
    """The finish transforms have run on the feed's batches, as on the right ones."""
    right = session.batches[step]
    if feed.spec != session.spec:  # the description has no checksum
        return
    arrays = infeed.finish.finish(dict(right), session.spec.finish_transforms, batch.mask)
    compare(session, step, batch, same=True, right=right.replaced(arrays))
