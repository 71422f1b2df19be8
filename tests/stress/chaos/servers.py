"""Server that is killed, terminated, frozen and restarted, always on the same port."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer, Launch, spawn
from tests.harness.waiting import HarnessError


class FaultyServer(InfeedServer):
    """`infeed serve` on a port that stays reserved while the server is down."""

    def __init__(
        self, definition: Path, folder: Path, name: str = "server", launch: Launch = spawn
    ) -> None:
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        log = folder / f"{name}-{self.port}"
        super().__init__(definition, log, listen=self._reserved.address, launch=launch)
        self.unclean_exits = 0
        """Number of exits after SIGTERM with a status other than 0."""
        self.running = False
        """Whether it was started, and neither killed nor terminated since."""
        self._is_stopping = False
        self._resume_timer: threading.Timer | None = None

    @property
    def frozen(self) -> bool:
        return self._resume_timer is not None and self._resume_timer.is_alive()

    @property
    def can_answer(self) -> bool:
        """Whether it serves and is not frozen."""
        return self.running and self.serves and not self.frozen

    def check(self) -> None:
        """Raises `HarnessError` if it ended without a signal from this run."""
        if self.running and self.ended:
            tail = self.process.log_tail
            raise HarnessError(f"{self.address} exited with status {self.process.status}: {tail}")

    def start(self) -> None:
        """Starts it after a terminating process has ended; returns before it serves."""
        self._reap()
        super().start()
        self.running = True

    def kill(self) -> None:
        self.running = self._is_stopping = False
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        super().kill()

    def ask_to_stop(self) -> None:
        self.running, self._is_stopping = False, True
        super().ask_to_stop()

    def freeze(self, seconds: float) -> None:
        """Sends SIGSTOP, and SIGCONT after that time."""
        self.process.signal(signal.SIGSTOP)
        self._resume_timer = threading.Timer(seconds, self.process.signal, (signal.SIGCONT,))
        self._resume_timer.daemon = True
        self._resume_timer.start()

    def _reap(self) -> None:
        if self._is_stopping:
            self._is_stopping = False
            self.unclean_exits += self.wait() != 0

    def close(self) -> None:
        """Waits for a terminating process, or kills a running one."""
        try:
            self._reap()
        finally:
            self.kill()
            self._reserved.close()

    def __exit__(self, *_: object) -> None:
        self.close()
