"""Ctrl-C during a load test: it takes effect between two records, and loses none of them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any


class HeldInterrupt:
    """Holds Ctrl-C back in a block, until the block waits or ends; a second one acts at once.

    A record that an interrupt lost between its arrival and the tally would be a gap in the audit.
    Does nothing in a thread, which gets no signals, or where a handler is set already.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._is_waiting = False
        self._is_installed = False

    def __enter__(self) -> HeldInterrupt:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._is_installed = True
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raises `KeyboardInterrupt` if one is still held back."""
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None and self._is_pending:
            raise KeyboardInterrupt

    def wait(self, sources: Iterable[Connection], timeout: float | None) -> list[Any]:
        """Waits as `multiprocessing.connection.wait`. Raises `KeyboardInterrupt`."""
        self._is_waiting = True
        try:
            if self._is_pending:
                raise KeyboardInterrupt
            return wait(list(sources), timeout)
        finally:
            self._is_waiting = False

    def _on_signal(self, *_: object) -> None:
        if self._is_waiting or self._is_pending:
            raise KeyboardInterrupt
        self._is_pending = True
