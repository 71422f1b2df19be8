"""Peers that say little and wait: some read nothing for the whole run, some say nothing more."""

from __future__ import annotations

import random
import select
import socket
import threading
import time

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import FEED, Catalog, asked_in_order, opening
from tests.stress.fuzz.peer import Peer
from tests.stress.fuzz.raw_connections import GREETING, request

from infeed.keepalive import SERVER_PATIENCE_SECONDS, SERVER_PING_SECONDS

GONE_SECONDS = SERVER_PING_SECONDS + SERVER_PATIENCE_SECONDS
"""After which a server has given up a peer that does not answer."""

_SLACK_SECONDS = 20.0


class IdleConnections:
    """Open for as long as the block lasts."""

    def __init__(self, address: str, catalog: Catalog) -> None:
        self._address = address
        self._catalog = catalog
        self._shut: list[Peer] = []
        self._silent: list[tuple[str, socket.socket]] = []
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._pump, name="idle-connections", daemon=True)

    @property
    def count(self) -> int:
        return len(self._shut) + len(self._silent)

    def __enter__(self) -> IdleConnections:
        rng = random.Random(0)
        for spec in self._catalog.specs.values():
            # It answers pings, so it may stay; it holds a window's batches and no more.
            peer = Peer(self._address)
            peer.greet(initial_window=0)
            peer.expect(1)
            peer.raw(request(1, f"{FEED}StreamBatches"))
            peer.data(1, opening(spec, epochs=0) + b"".join(asked_in_order(spec, range(900))))
            self._shut.append(peer)
        whole = GREETING + request(1, f"{FEED}StreamBatches")
        for name, data in {
            "says nothing": b"",
            "half a preface": GREETING[:10],
            "half a frame": whole[:-20],
            "a stream without its first message": whole,
            "half a message": whole + frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\x09" + b"x"),
            "noise": rng.randbytes(8),
        }.items():
            connection = socket.create_connection(self._address.rsplit(":", 1), timeout=20)
            connection.sendall(data)
            self._silent.append((name, connection))
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for peer in self._shut:
            peer.close()
        for _, connection in self._silent:
            connection.close()

    def problems(self) -> list[str]:
        """What is wrong with how the server treats them; waits until it should have ended them."""
        left = self._began + GONE_SECONDS + _SLACK_SECONDS - time.monotonic()
        time.sleep(max(0.0, left))
        found = [f"a peer that {name} is kept for ever" for name, one in self._silent if _open(one)]
        if any(peer.over for peer in self._shut):
            found.append("a peer whose window is shut was cut off, though it answers pings")
        return found

    def _pump(self) -> None:
        while not self._stopping.is_set():
            poll = select.poll()
            alive = {peer.fileno(): peer for peer in self._shut if not peer.over}
            for file, peer in alive.items():
                poll.register(file, select.POLLIN | select.POLLOUT * peer.wants_to_send)
            for file, _ in poll.poll(100):
                alive[file].send()
                alive[file].receive()


def _open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
