"""A pool of worker processes, which answer requests and are replaced when they end."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from infeed.shared.errors import InfeedError
from infeed_python.daemon_executor import DaemonExecutor
from infeed_python.worker_process import WorkerProcess

log = logging.getLogger(__name__)

MAX_REPEATS = 3
"""Retries of a request whose worker ended. If all end, the request is taken as the cause."""

_EXIT_TIMEOUT_SECONDS = 2.0
"""Time for workers to finish a request at shutdown, before they are killed."""


class WorkerEndedError(Exception):
    """Every worker that took a request ended; the message tells how the last one ended."""


class PoolClosedError(Exception):
    """The pool was closed before it answered a request."""


OnBegin = Callable[[int], None]
"""Takes the id of the process that begins a request; called again when it is repeated."""


class WorkerPool:
    """Worker processes that take requests from one queue. Thread-safe. Each has a thread that
    starts it, sends it requests and replaces it when it ends, because the kernel ends a process
    together with the thread that started it."""

    def __init__(self, name: str, count: int, handler: str, argument: Any) -> None:
        """Starts the processes without waiting for them. Raises `OSError` if a thread cannot start.
        Each process calls the function `handler`, a `module:attr`, with `argument`; what it
        returns answers requests."""
        self._first_message = (handler, argument)
        self._processes: dict[str, WorkerProcess] = {}
        """The process of each thread, by the thread's name."""
        names = [f"infeed-{name} {number}" for number in range(count)]
        try:
            self._executor = DaemonExecutor(*names, on_start=self._start, on_end=self._end)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [process.pid for process in list(self._processes.values()) if not process.ended]

    def submit(self, request: Any, on_begin: OnBegin = lambda _: None) -> Future[Any]:
        """Sends a request to the next free worker; returns the future of its answer."""
        try:
            return self._executor.submit(self._perform, request, on_begin)
        except RuntimeError:
            raise PoolClosedError from None

    def start_process(self) -> WorkerProcess:
        return WorkerProcess(self._first_message)

    def close(self) -> None:
        """Ends the workers. Requests not yet begun fail; those in progress have two seconds."""
        self._executor.close()
        deadline = time.monotonic() + _EXIT_TIMEOUT_SECONDS
        for thread in self._executor.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            process = self._processes.get(thread.name)
            if thread.is_alive() and process is not None:
                log.warning("%s did not end in time; killed", thread.name)
                process.kill()
            thread.join()

    def _start(self) -> None:
        with suppress(OSError):  # the first request tries again and raises the error
            self._processes[_worker()] = self.start_process()

    def _end(self) -> None:
        if process := self._processes.get(_worker()):
            process.end(_EXIT_TIMEOUT_SECONDS)

    def _perform(self, request: Any, on_begin: OnBegin) -> Any:
        ending = ""
        for _ in range(1 + MAX_REPEATS):
            if self._executor.closed:
                raise PoolClosedError
            process = self._processes.get(_worker())
            if process is not None and process.ended:
                self._reap(process)
                process = None
            if process is None:
                process = self._processes[_worker()] = self.start_process()
            on_begin(process.pid)
            try:
                answer = process.call(request)
            except Exception:  # noqa: BLE001 - after any error, the next message cannot be found
                ending = self._reap(process)
                continue
            if isinstance(answer, InfeedError):
                raise answer
            return answer
        raise WorkerEndedError(ending)

    def _reap(self, process: WorkerProcess) -> str:
        """Removes the process; returns how it ended."""
        del self._processes[_worker()]
        ending = process.end()
        if not self._executor.closed:
            log.warning("%s (process %d) ended: %s", _worker(), process.pid, ending)
        return ending


def _worker() -> str:
    return threading.current_thread().name
