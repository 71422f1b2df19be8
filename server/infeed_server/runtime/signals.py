"""The owner of signals: the only file that handles them."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from types import FrameType

_END_SECONDS = 5.0
"""What a stop may take beyond the grace of open streams: a user's function that never returns must
not keep the process."""


class Stop:
    """Asked for by SIGTERM or SIGINT; a second signal ends the process at once.

    A signal that comes before anyone waits, while the server still opens its sources, raises
    `SystemExit` on the main thread: there is nothing to hand back, and an index may take minutes.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._waited_for = False

    def install(self) -> None:
        """Takes over both signals; must be called on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def request(self) -> None:
        """The same as a first signal."""
        self._event.set()

    def with_parent(self) -> None:
        """Asks for the stop when standard input ends: with the parent that holds its other end."""

        def watch() -> None:
            while os.read(0, 1024):
                pass
            self.request()

        threading.Thread(target=watch, name="infeed-parent", daemon=True).start()

    def asked(self, seconds: float) -> bool:
        """Whether the stop is asked for, now or within so many seconds."""
        self._waited_for = True
        return self._event.wait(seconds)

    def wait(self, grace: float) -> None:
        """Returns when the stop is asked for; from then on the process has `grace` seconds and a
        few more to end."""
        self._waited_for = True
        # In pieces: a bare wait() would keep the main thread from running signal handlers on
        # platforms whose lock cannot be interrupted.
        while not self._event.wait(0.5):
            pass
        # Not a thread of Python's: where TensorFlow waits for ever it holds the interpreter's lock.
        faulthandler.dump_traceback_later(
            grace + _END_SECONDS, exit=True, file=os.open(os.devnull, os.O_WRONLY)
        )

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._event.is_set():
            os._exit(128 + number)
        self._event.set()
        if not self._waited_for:
            raise SystemExit(128 + number)
