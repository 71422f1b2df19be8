"""Idle connections: peers that read nothing, or send nothing more, during a run."""

from __future__ import annotations

import random
import select
import socket
import threading
import time

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import FEED, Catalog, open_request, step_requests
from tests.stress.fuzz.peer import Peer
from tests.stress.fuzz.raw_connections import CLIENT_PREFACE, request

from infeed.shared.keepalive import SERVER_PING_INTERVAL_SECONDS, SERVER_PING_TIMEOUT_SECONDS

CLOSE_TIMEOUT_SECONDS = SERVER_PING_INTERVAL_SECONDS + SERVER_PING_TIMEOUT_SECONDS
"""Maximum time until a server closes the connection of a peer that does not answer pings."""

_SLACK_SECONDS = 20.0


class IdleConnections:
    """Idle connections, open for the duration of the block."""

    def __init__(self, address: str, catalog: Catalog) -> None:
        self._address = address
        self._catalog = catalog
        self._blocked: list[Peer] = []
        self._silent: list[tuple[str, socket.socket]] = []
        self._begin = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="idle-connections", daemon=True)

    @property
    def count(self) -> int:
        return len(self._blocked) + len(self._silent)

    def __enter__(self) -> IdleConnections:
        rng = random.Random(0)
        for spec in self._catalog.specs.values():
            # It answers pings, so the server keeps it, with at most one window of batches.
            peer = Peer(self._address)
            peer.send_preface(initial_window=0)
            peer.expect(1)
            peer.raw(request(1, f"{FEED}StreamBatches"))
            peer.data(1, open_request(spec, epochs=0) + b"".join(step_requests(spec, range(900))))
            self._blocked.append(peer)
        opened = CLIENT_PREFACE + request(1, f"{FEED}StreamBatches")
        for name, data in {
            "sends nothing": b"",
            "sends half a preface": CLIENT_PREFACE[:10],
            "sends half a frame": opened[:-20],
            "sends a stream without its first message": opened,
            "sends half a message": opened
            + frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\x09" + b"x"),
            "sends noise": rng.randbytes(8),
        }.items():
            connection = socket.create_connection(self._address.rsplit(":", 1), timeout=20)
            connection.sendall(data)
            self._silent.append((name, connection))
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for peer in self._blocked:
            peer.close()
        for _, connection in self._silent:
            connection.close()

    def problems(self) -> list[str]:
        """Returns wrongly kept or closed connections, after the server's timeout has passed."""
        remaining = self._begin + CLOSE_TIMEOUT_SECONDS + _SLACK_SECONDS - time.monotonic()
        time.sleep(max(0.0, remaining))
        problems = [
            f"the connection of a peer that {name} was not closed"
            for name, connection in self._silent
            if _is_open(connection)
        ]
        if any(peer.is_closed for peer in self._blocked):
            problems.append(
                "the connection of a peer with a closed window was closed despite pings"
            )
        return problems

    def _poll(self) -> None:
        while not self._stopping.is_set():
            poll = select.poll()
            alive = {peer.fileno(): peer for peer in self._blocked if not peer.is_closed}
            for file, peer in alive.items():
                poll.register(file, select.POLLIN | select.POLLOUT * peer.wants_to_send)
            for file, _ in poll.poll(100):
                alive[file].send()
                alive[file].receive()


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
