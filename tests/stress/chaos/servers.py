"""Server of a run: it is killed, ended, halted and restarted, always on the same port."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer, Launch, spawn
from tests.harness.waiting import HarnessError


class FaultyServer(InfeedServer):
    """`infeed serve` on a port that nothing else takes while the server is down."""

    def __init__(
        self, definition: Path, folder: Path, name: str = "server", launch: Launch = spawn
    ) -> None:
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        log = folder / f"{name}-{self.port}"
        super().__init__(definition, log, listen=self._reserved.address, launch=launch)
        self.unclean = 0
        """Ends after SIGTERM with another exit status than 0."""
        self.running = False
        """Whether it was started, and neither killed nor asked to stop since."""
        self._is_stopping = False
        self._thaw: threading.Timer | None = None

    @property
    def frozen(self) -> bool:
        return self._thaw is not None and self._thaw.is_alive()

    @property
    def can_answer(self) -> bool:
        """Whether it serves, and is not halted."""
        return self.running and self.serves and not self.frozen

    def check(self) -> None:
        """Raises `HarnessError` if it ended without a signal of ours."""
        if self.running and self.ended:
            tail = self.process.log_tail
            raise HarnessError(f"{self.address} ended with {self.process.status}: {tail}")

    def start(self) -> None:
        """Returns before it serves. Waits for the end of a process that was asked to stop."""
        self._reap()
        super().start()
        self.running = True

    def kill(self) -> None:
        self.running = self._is_stopping = False
        if self._thaw is not None:
            self._thaw.cancel()
        super().kill()

    def ask_to_stop(self) -> None:
        self.running, self._is_stopping = False, True
        super().ask_to_stop()

    def freeze(self, seconds: float) -> None:
        """Sends SIGSTOP, and SIGCONT after that time."""
        self.process.signal(signal.SIGSTOP)
        self._thaw = threading.Timer(seconds, self.process.signal, (signal.SIGCONT,))
        self._thaw.daemon = True
        self._thaw.start()

    def _reap(self) -> None:
        if self._is_stopping:
            self._is_stopping = False
            self.unclean += self.wait() != 0

    def close(self) -> None:
        """Waits for the end of a process that was asked to stop, and kills any other."""
        try:
            self._reap()
        finally:
            self.kill()
            self._reserved.close()

    def __enter__(self) -> FaultyServer:
        self.start()
        try:
            self.wait_until_serving()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["FaultyServer"]
