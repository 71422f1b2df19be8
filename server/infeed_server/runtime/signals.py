"""The owner of signals: the only file that handles them."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType


class Stop:
    """Set by SIGTERM or SIGINT; a second signal ends the process at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def install(self) -> None:
        """Takes over both signals; must be called on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def request(self) -> None:
        """The same as a first signal."""
        self._event.set()

    def wait(self) -> None:
        # In pieces: a bare wait() would keep the main thread from running signal handlers on
        # platforms whose lock cannot be interrupted.
        while not self._event.wait(0.5):
            pass

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._event.is_set():
            os._exit(128 + number)
        self._event.set()
