"""Servers as real processes, each on a port of its own that it has again after every restart."""

from __future__ import annotations

import random
import signal
import socket
import threading
from pathlib import Path

from tests.stress.chaos.processes import ChaosError, Process, until

_PORTS = range(20_000, 30_000)
"""Below those that systems give to outgoing connections: while a server is away, none of them may
take its port, nor connect to itself there."""


class Server:
    """`infeed serve`, started by `start`, as often as one likes."""

    def __init__(self, definition: Path, folder: Path, name: str = "server") -> None:
        self.port = free_port()
        self.starts = 0
        self.unclean = 0
        """Ends after SIGTERM with another exit status than 0."""
        self._definition = definition
        self._log = folder / f"{name}-{self.port}.log"
        self._process: Process | None = None
        self._terminated = False
        self._thaw: threading.Timer | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def frozen(self) -> bool:
        return self._thaw is not None and self._thaw.is_alive()

    @property
    def running(self) -> bool:
        """Whether it was started, and neither killed nor told to end since."""
        return self._process is not None and not self._terminated

    @property
    def serves(self) -> bool:
        """Whether it runs and has said that it serves."""
        process = self._process
        return process is not None and not self._terminated and "serving on " in process.said

    def check(self) -> None:
        """Raises `ChaosError` if it ended, though nobody told it to."""
        if self.running and self._process is not None and self._process.status is not None:
            told = self._process.last_words
            raise ChaosError(f"{self._process.name} ended by itself: {told}")

    def start(self) -> None:
        """Returns before it serves. What ended before is waited for."""
        self._reap()
        self.starts += 1
        words = ("serve", str(self._definition), "--listen", self.address, "--http", "off")
        self._process = Process("infeed", words, self._log)

    def wait_until_serving(self) -> None:
        """Raises `ChaosError`."""

        def serves() -> bool:
            self.check()
            return self.serves

        until(serves, f"{self.address} serves")

    def kill(self) -> None:
        """As `kill -9`."""
        process, self._process = self._process, None
        if self._thaw is not None:
            self._thaw.cancel()
        if process is not None:
            process.kill()

    def terminate(self) -> None:
        """SIGTERM, without waiting for the end."""
        assert self._process is not None
        self._terminated = True
        self._process.send(signal.SIGTERM)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after that time."""
        process = self._process
        assert process is not None
        process.send(signal.SIGSTOP)
        self._thaw = threading.Timer(seconds, process.send, (signal.SIGCONT,))
        self._thaw.daemon = True
        self._thaw.start()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                self.unclean += process.wait() != 0
            finally:
                process.close()
        self._terminated = False

    def stop(self) -> None:
        """Ends it in good order where it was told to end, and else at once."""
        if self._terminated:
            self._reap()
        self.kill()


def free_port() -> int:
    """A port that nobody listens on now."""
    for port in random.Random().sample(_PORTS, 200):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise ChaosError(f"no free port among 200 of {_PORTS}")


__all__ = ["Server", "free_port"]
