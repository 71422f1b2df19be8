"""A server on a real socket that says what it is told to, and feeds that connect to it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator

import hpack
from tests.stress.fuzz import frames
from tests.stress.fuzz.case import mutated, pieces
from tests.stress.fuzz.replies import REPLIES, WrongError, compare
from tests.stress.fuzz.sessions import Session

import infeed
from infeed.errors import InfeedError

_SECONDS = 20.0
_HANG_SECONDS = 60.0
_LISTEN_SECONDS = 0.05
"""How long it waits for more of what it is asked."""

Say = Callable[[str], "list[bytes] | None"]
"""What is said to a call of a method; None: nothing, for as long as the peer stays."""


class FakeServer:
    """Takes connections for as long as the block lasts."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> FakeServer:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_SECONDS)
        with connection, contextlib.suppress(OSError):
            said = self._say(_method(connection))
            for part in said or ():
                connection.sendall(part)
            if said is not None:
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass


def _method(connection: socket.socket) -> str:
    """The last part of the path that is asked for, once nothing more comes for a moment."""
    data = bytearray()
    path = ""
    while not path:
        data += (more := connection.recv(1 << 16))
        if not more:
            raise ConnectionAbortedError
        path = _path(bytes(data[len(frames.PREFACE) :]))
    connection.settimeout(_LISTEN_SECONDS)
    with contextlib.suppress(TimeoutError):
        while connection.recv(1 << 16):
            pass
    connection.settimeout(_SECONDS)
    return path.rpartition("/")[2]


def _path(data: bytes) -> str:
    while len(data) >= 9:
        end = 9 + int.from_bytes(data[:3], "big")
        if data[3] == frames.HEADERS and len(data) >= end:
            return dict(hpack.Decoder().decode(data[9:end])).get(":path", "")
        data = data[end:]
    return ""


@REPLIES.add(2)
def mutated_connections(rng: random.Random, session: Session) -> str:
    """All of `connect` and the feed against a session whose bytes are changed."""
    spoiled = rng.choice(("GetPipeline", "StreamBatches", "StreamBatches", "StreamBatches"))
    lock = threading.Lock()

    def say(method: str) -> list[bytes]:
        data = session.described if method == "GetPipeline" else session.streamed
        with lock:
            bad = mutated(rng, data) if method == spoiled else data
            return pieces(rng, bad, 3)

    with FakeServer(say) as fake:
        return read(fake.address, session)


@REPLIES.add(0.5)
def good_connections(rng: random.Random, session: Session) -> str:
    """Nothing is changed: that the others fail must be for what was changed."""

    def say(method: str) -> list[bytes]:
        return pieces(rng, session.described if method == "GetPipeline" else session.streamed)

    if session.expected.payload_bytes is None:
        return "asks for less at a time than was recorded"
    with FakeServer(say) as fake:
        how = read(fake.address, session)
    if how != "whole":
        raise WrongError(f"a good session ends with {how}")
    return how


def read(address: str, session: Session) -> str:
    """How a feed of the session ends. Raises `WrongError` for batches that are not right."""
    count = 0
    try:
        with infeed.connect(
            address,
            session.spec.name,
            epochs=1,
            remainder="pad",
            timeout=0.3,
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
