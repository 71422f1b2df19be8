"""TCP listener of a fake server, with one thread per connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tests.harness.waiting import HarnessError

_SOCKET_TIMEOUT_SECONDS = 60.0
"""Bound on each socket operation; a longer one fails the test, because the peer hangs."""

_JOIN_TIMEOUT_SECONDS = 120.0
"""Bound on the end of each thread; a longer one raises `HarnessError`."""


class Listener:
    """Listens on a free port of loopback until `close`. Also a context manager.

    `close` raises the first error of a handler, except that its peer closed the connection.
    """

    def __init__(self, handle: Callable[[socket.socket], None]) -> None:
        self._handle = handle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._accept, name="listener")]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_SOCKET_TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            try:
                self._handle(connection)
            except (BrokenPipeError, ConnectionResetError):
                pass
            except BaseException as error:  # noqa: BLE001 - raised by close
                self.errors.append(error)

    def close(self) -> None:
        """Stops listening, and waits for all connections to end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:  # the first accepts: after its end the list is complete
            thread.join(_JOIN_TIMEOUT_SECONDS)
            if thread.is_alive():
                raise HarnessError(f"a {thread.name} thread of {self.address} hangs")
        for error in self.errors:
            raise error

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
