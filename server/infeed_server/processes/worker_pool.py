"""A pool of worker processes that answer requests, and are replaced when they end."""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from infeed.shared.errors import from_reason
from infeed_server.processes.worker_main import Failure
from infeed_server.processes.worker_process import WorkerProcess

log = logging.getLogger(__name__)

MAX_REPEATS = 3
"""Repetitions of a request whose worker ended. If all end, the request is the cause."""

_EXIT_TIMEOUT_SECONDS = 2.0
"""Time that workers have at shutdown to end the request at hand, before they are killed."""


class WorkerEndedError(Exception):
    """Each worker that took a request ended; the message continues "the worker ended with"."""


class PoolClosedError(Exception):
    """The pool was closed before it answered a request."""


OnBegin = Callable[[int], None]
"""Gets the id of the process that begins a request, again when it is repeated."""


@dataclass(frozen=True)
class _Task:
    request: Any
    on_begin: OnBegin
    future: Future[Any] = field(default_factory=Future)


class WorkerPool:
    """Worker processes that take requests from one queue. Thread-safe.

    Each has a thread, which starts it, sends it requests, and starts another when it has ended.
    """

    def __init__(self, name: str, count: int, handler: str, argument: Any) -> None:
        """Starts the processes without waiting for them. Raises `OSError` without enough threads.

        The function `handler`, `module:attr`, is called in each of them with `argument`, and
        returns the function that answers a request.
        """
        self._first_message = (handler, argument)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.closed = False
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                self._workers.append(_Worker(self, f"{name} {number}"))
        except RuntimeError as error:  # of the thread's start
            self.close()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run."""
        processes = [worker.process for worker in self._workers]
        return [each.pid for each in processes if each is not None and not each.ended]

    def submit(self, request: Any, on_begin: OnBegin = lambda _: None) -> Future[Any]:
        """Sends a request to the next free worker; returns the future of its answer.

        It has the `InfeedError` that the handler raised, `WorkerEndedError` or `PoolClosedError`.
        """
        task = _Task(request, on_begin)
        with self._lock:
            if self.closed:
                raise PoolClosedError
            self._tasks.put(task)
        return task.future

    def start_process(self) -> WorkerProcess:
        return WorkerProcess(self._first_message)

    def next_task(self) -> _Task | None:
        """Waits for a task. None: the pool is closed."""
        while (task := self._tasks.get()) is not None and self.closed:
            task.future.set_exception(PoolClosedError())
        return task

    def close(self) -> None:
        """Ends the workers. Requests that none has begun fail; those at hand have two seconds."""
        with self._lock:
            self.closed = True
        for _ in self._workers:
            self._tasks.put(None)
        deadline = time.monotonic() + _EXIT_TIMEOUT_SECONDS
        for worker in self._workers:
            worker.end(deadline)


class _Worker:
    """The thread of one worker. The kernel ends the process with the thread that started it."""

    def __init__(self, pool: WorkerPool, name: str) -> None:
        """Starts the thread. Raises `RuntimeError` if it cannot be started."""
        self.process: WorkerProcess | None = None
        self._pool = pool
        self._name = name
        self._thread = threading.Thread(target=self._run, name=f"infeed-{name}", daemon=True)
        self._thread.start()

    def end(self, deadline: float) -> None:
        """Waits for the end of the process, and kills it at the deadline."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() and self.process is not None:
            log.warning("%s did not end in time; killed", self._name)
            self.process.kill()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.process = self._pool.start_process()
        except OSError as error:
            log.error("%s cannot be started: %s", self._name, error)
        while (task := self._pool.next_task()) is not None:
            try:
                answer = self._perform(task)
            except Exception as error:  # noqa: BLE001 - it is the task's
                task.future.set_exception(error)
            else:
                task.future.set_result(answer)
        if self.process is not None:
            self.process.end(_EXIT_TIMEOUT_SECONDS)

    def _perform(self, task: _Task) -> Any:
        ending = ""
        for _ in range(1 + MAX_REPEATS):
            if self._pool.closed:
                raise PoolClosedError
            process = self._running_process()
            task.on_begin(process.pid)
            try:
                answer = process.call(task.request)
            except (EOFError, OSError):
                ending = self._reap(process)
            else:
                if isinstance(answer, Failure):
                    raise from_reason(answer.reason, answer.message, answer.metadata)
                return answer.value
        raise WorkerEndedError(ending)

    def _running_process(self) -> WorkerProcess:
        if self.process is not None and self.process.ended:
            self._reap(self.process)
        if self.process is None:
            self.process = self._pool.start_process()
        return self.process

    def _reap(self, process: WorkerProcess) -> str:
        """Returns how the process ended."""
        self.process = None
        ending = process.end()
        if not self._pool.closed:
            log.warning("%s (process %d) ended: %s", self._name, process.pid, ending)
        return ending
