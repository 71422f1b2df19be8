"""The request thread of object stores, and the stores' clients.

A process makes all requests in one thread, started at its first request, because obstore's threads
do not survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from obstore import store as stores

from infeed.shared.errors import SourceError

_IN_FLIGHT = 256
"""Concurrent requests: 110 KB each at a round trip of 30 ms make 900 MB/s."""

ANSWER_SECONDS = 5.0
"""Limit for the start of an answer, including retries and the search for credentials."""

_END_SECONDS = 0.2

_RETRIES: dict[str, Any] = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=2),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "base": 2},
}
"""Retries of a request; after them, `retry_faults` repeats the read."""

_CLIENT: dict[str, Any] = {
    "allow_http": True,  # if the user names such an endpoint
    "connect_timeout": timedelta(seconds=3),
    "timeout": timedelta(seconds=30),
    "pool_max_idle_per_host": str(_IN_FLIGHT),
}

Result = TypeVar("Result")


class Requests:
    """The stores and the thread of requests of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.in_flight = asyncio.Semaphore(_IN_FLIGHT)
        self.round_trip, self.bytes_per_second = 0.01, 100e6
        """The measured values; before the first request, guesses for a nearby store."""
        self.requests = self.received_bytes = 0
        """Requests for bytes of objects, and the bytes received."""
        self._stores: dict[str, Any] = {}
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="infeed-objects", daemon=True
        )
        self._thread.start()
        atexit.register(self._end)

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def _end(self) -> None:
        """Ends the requests at exit, because an obstore thread that returns to Python while the
        interpreter shuts down would abort the process."""
        if self.pid != os.getpid():
            return

        def stop() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_soon(self.loop.stop)

        self.loop.call_soon_threadsafe(stop)
        self._thread.join(_END_SECONDS)
        time.sleep(_END_SECONDS)  # no signal tells when obstore's threads release the answers

    def store(self, root: str) -> Any:
        """Returns the client of a store. Raises obstore's errors."""
        if root not in self._stores:
            self._stores[root] = _open_store(root)
        return self._stores[root]

    def measure(self, round_trip: float, size: int, seconds: float) -> None:
        self.round_trip += (round_trip - self.round_trip) / 16
        if size >= 1 << 16:
            rate = size / max(seconds, 1e-4)
            self.bytes_per_second += (rate - self.bytes_per_second) / 16


_lock = threading.Lock()
_process: Requests | None = None


def of_process() -> Requests:
    """Returns the thread and stores of this process. Raises `SourceError` in a fork of a process
    that used some: without obstore's threads, a request would never end."""
    global _process  # noqa: PLW0603 - one for the process
    with _lock:
        _process = _process or Requests()
        if _process.pid != os.getpid():
            raise SourceError(
                f"process {os.getpid()} cannot use object stores: it was forked from process "
                f"{_process.pid}, which uses them; start it with spawn or forkserver"
            )
        return _process


def traffic() -> tuple[int, int]:
    """Returns the number of requests for objects' bytes that this process made, and the bytes."""
    return (_process.requests, _process.received_bytes) if _process else (0, 0)


def split_path(path: str) -> tuple[str, str]:
    """Returns the root of a store, such as `gs://bucket`, and an object's key in it."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def _open_store(root: str) -> Any:
    options: dict[str, Any] = {"client_options": _CLIENT, "retry_config": _RETRIES}
    if root == "file://":
        return stores.LocalStore("/")
    if root.startswith("http"):
        return stores.HTTPStore.from_url(root, **options)
    return stores.from_url(root, **options)
