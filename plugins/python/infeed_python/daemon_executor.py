"""An executor of daemon threads, for calls that may never return."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonExecutor:
    """Runs calls in turn; a process that exits does not wait for them. Thread-safe."""

    def __init__(
        self,
        *names: str,
        on_start: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts a thread per name; each calls `on_start` first and `on_end` after `close`.
        Raises `RuntimeError` if one cannot be started."""
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._on_start, self._on_end = on_start, on_end
        self.closed = False
        self.threads: list[threading.Thread] = []
        try:
            for name in names:
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self.threads.append(thread)
        except RuntimeError:
            self.close()
            raise

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Raises `RuntimeError` after `close`."""
        future: Future[Result] = Future()
        with self._lock:
            if self.closed:
                raise RuntimeError("the executor is closed")
            self._calls.put((future, function, arguments))
        return future

    def close(self) -> None:
        """Ends the threads after the submitted calls, without waiting for them."""
        with self._lock:
            self.closed = True
        for _ in self.threads:
            self._calls.put(None)

    def _run(self) -> None:
        self._on_start()
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - `result` raises it
                future.set_exception(error)
        self._on_end()
