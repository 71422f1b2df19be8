"""The shutdown signal: the only module that handles SIGTERM and SIGINT."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EXIT_TIMEOUT_SECONDS = 5.0
"""Seconds of a shutdown after the grace of open streams; then the process exits, so that a user's
function that never returns cannot keep it alive."""

_INTERRUPT_TIMEOUT_SECONDS = 2.0
"""Seconds from Ctrl-C to the end of a command whose main thread does not handle it."""


@contextmanager
def exit_after_interrupt(before_exit: Callable[[], object]) -> Iterator[None]:
    """Ends the process with status 130 after a SIGINT within the block, unless the exception ends
    it first. While TensorFlow waits for the user's code, which may never return, the main thread
    cannot handle the signal. `before_exit` is called on any thread."""
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    previous = signal.set_wakeup_fd(sender, warn_on_full_buffer=False)

    def watch() -> None:
        with os.fdopen(receiver, "rb", buffering=0) as signals:
            while (numbers := signals.read(1)) and signal.SIGINT not in numbers:
                pass
        if numbers:
            time.sleep(_INTERRUPT_TIMEOUT_SECONDS)
            before_exit()
            os._exit(128 + signal.SIGINT)

    threading.Thread(target=watch, name="infeed-interrupt", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(sender)


class ShutdownSignal:
    """Set by SIGTERM or SIGINT; a second signal ends the process at once. A signal before the first
    `is_set` or `wait`, while the server opens its sources, raises `SystemExit` on the main thread:
    no stream is open yet, and an index may take minutes."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._is_polled = False
        self.status = 0
        """Exit status of a process that the signal ends: 128 and its number."""

    def set(self) -> None:
        self._event.set()

    def install(self) -> None:
        """Installs the handler of both signals; must be called on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def set_when_parent_exits(self) -> None:
        """Requests the shutdown when standard input ends: the parent holds its other end."""

        def wait_for_end() -> None:
            while os.read(0, 1024):
                pass
            self.set()

        threading.Thread(target=wait_for_end, name="infeed-parent", daemon=True).start()

    def is_set(self, timeout: float) -> bool:
        """Returns whether the shutdown was requested, after waiting for it up to `timeout` seconds.
        From the first call on, a signal only requests the shutdown."""
        self._is_polled = True
        return self._event.wait(timeout)

    def wait(self, grace: float) -> None:
        """Waits for the request; from then on the process has `grace` seconds and a few more to
        end."""
        while not self.is_set(0.5):  # in pieces, so that the main thread runs signal handlers
            pass
        # Not a Python thread: TensorFlow may hold the interpreter's lock while it waits.
        faulthandler.dump_traceback_later(
            grace + _EXIT_TIMEOUT_SECONDS, exit=True, file=os.open(os.devnull, os.O_WRONLY)
        )

    def _handle(self, number: int, _: object) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self._event.set()
        self.status = 128 + number
        if not self._is_polled:
            raise SystemExit(self.status)
