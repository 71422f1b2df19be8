"""An executor of one daemon thread, for calls that may never return."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Call:
    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


class DaemonExecutor:
    """Runs calls in turn. A process that exits does not wait for them, unlike for those of
    `ThreadPoolExecutor`."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Raises `RuntimeError` after `close`."""
        call = _Call(lambda: function(*arguments))
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is closed")
            self._calls.put(call)
        return call.future

    def close(self) -> None:
        """Ends the thread after the calls that were submitted, without waiting for them."""
        with self._lock:
            self._closed = True
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                result = call.run()
            except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
                call.future.set_exception(error)
            else:
                call.future.set_result(result)
