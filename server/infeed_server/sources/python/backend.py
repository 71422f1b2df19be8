"""The backend of the user's Python code: a thread of the server, or worker processes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed.shared.spec.dtypes import Array
from infeed_server.processes.daemon_executor import DaemonExecutor
from infeed_server.processes.worker_pool import (
    MAX_REPEATS,
    OnBegin,
    PoolClosedError,
    WorkerEndedError,
    WorkerPool,
)
from infeed_server.sources.python.dataset import DatasetOptions
from infeed_server.sources.python.values import Field
from infeed_server.sources.python.work_meter import WorkMeter
from infeed_server.sources.python.worker import ReadColumns, Worker

log = logging.getLogger(__name__)

_MAX_LISTED = 8
"""Samples that an error lists."""

_SLOW_SECONDS = 60.0
"""Time after which a request is logged. Shorter: also requests that are only slow."""

_REPEAT_SECONDS = 600.0
"""Time until it is logged again."""

_CHECK_INTERVAL_SECONDS = 10.0

_WORKER = f"{Worker.__module__}:{Worker.__name__}"


class Backend:
    """Calls methods of `Worker`: one on a thread of the server, or in several processes."""

    def __init__(self, label: str, processes: int, options: DatasetOptions | None = None) -> None:
        """`label` names the user's code in messages; `options` are the data set's, if it is one.

        Raises `SourceError` without enough processes or threads.
        """
        self.label = label
        self._parts = max(1, processes)
        self.meter = WorkMeter(self._parts)
        try:
            self.runner: WorkerPool | _ThreadRunner = (
                WorkerPool(f"worker of {label}", processes, _WORKER, options)
                if processes
                else _ThreadRunner(options)
            )
        except OSError as error:
            raise self._not_started(error) from error

    def close(self) -> None:
        self.runner.close()

    def call(self, method: Callable[..., Any], *arguments: Any, indices: Sequence[int] = ()) -> Any:
        """Returns the answer of a method. `indices` are of the samples that it reads at start.

        Raises its errors, and `SourceError` where no worker process answers.
        """
        return self._submit(method, arguments, indices, at_start=True)()

    def read(
        self,
        method: Callable[..., ReadColumns],
        fields: Sequence[Field],
        indices: Sequence[int],
        arguments: Callable[[slice], tuple[Any, ...]],
    ) -> dict[str, Array]:
        """Returns the columns of a method, called in parts so that a batch uses all processes.

        `arguments` returns those for a part of the indices. Raises as `call` does.
        """
        size = -(-len(indices) // self._parts)
        begins = range(0, len(indices), size) if indices else (0,)
        parts = [slice(begin, begin + size) for begin in begins]
        answers = [self._submit(method, arguments(part), indices[part]) for part in parts]
        columns = []
        for part, answer in zip(parts, answers, strict=True):
            read: ReadColumns = answer()
            self.meter.on_read(len(indices[part]), read.slowest_sample, read.slowest_seconds)
            columns.append(read.columns)
        if len(columns) == 1:
            return columns[0]
        return {
            field.name: np.concatenate([part_columns[field.name] for part_columns in columns])
            for field in fields
        }

    def _submit(
        self,
        method: Callable[..., Any],
        arguments: tuple[Any, ...],
        indices: Sequence[int],
        *,
        at_start: bool = False,
    ) -> Callable[[], Any]:
        """Sends a request; returns the function that waits for its answer."""
        subject = self._subject(indices)
        pending = PendingRequest(subject)

        def begin(pid: int) -> None:
            self.meter.begin(pending)
            pending.begin(pid)

        def wait() -> Any:
            try:
                return pending.wait(answer)
            except PoolClosedError:
                raise self._closed() from None
            except WorkerEndedError as error:
                task = f"{'read' if indices else 'opened'} {subject}"
                remedy = "; declare the fields, so that none is read at start: fields: ..."
                raise SourceError(
                    f"each worker process that {task} ended, the last of {1 + MAX_REPEATS} "
                    f"with {error}; its own output may say why"
                    f"{remedy if at_start and indices else ''}",
                    file=self.label,
                ) from None
            except OSError as error:
                raise self._not_started(error) from error

        try:
            answer = self.runner.submit((method.__name__, arguments), begin)
        except PoolClosedError:
            raise self._closed() from None
        answer.add_done_callback(lambda _: self.meter.end(pending))
        return wait

    def _subject(self, indices: Sequence[int]) -> str:
        if not indices:
            return self.label
        more = ", ..." if len(indices) > _MAX_LISTED else ""
        return f"samples {', '.join(map(str, indices[:_MAX_LISTED]))}{more} of {self.label}"

    def _not_started(self, error: OSError) -> SourceError:
        return SourceError(
            f"no worker process of {self.label} can be started: {error.strerror}; give fewer "
            "processes, or raise the limits of open files and of processes",
            file=self.label,
        )

    def _closed(self) -> SourceError:
        return SourceError(
            f"{self.label} is not read any more: the server is shutting down", file=self.label
        )


class _ThreadRunner:
    """Makes the worker and answers all requests on one thread of its own.

    Few data sets are made for several threads at a time, and some, such as SQLite's, only for the
    thread that made them.
    """

    def __init__(self, options: DatasetOptions | None) -> None:
        self._thread = DaemonExecutor("infeed-python")
        self._options = options
        self._worker: Worker | None = None

    def submit(self, request: Any, on_begin: OnBegin) -> Future[Any]:
        """Returns the future of the answer. Raises `PoolClosedError`."""
        try:
            return self._thread.submit(self._perform, request, on_begin)
        except RuntimeError:  # the executor is closed
            raise PoolClosedError from None

    def close(self) -> None:
        self._thread.close()

    def _perform(self, request: Any, on_begin: OnBegin) -> Any:
        on_begin(os.getpid())
        if self._worker is None:
            self._worker = Worker(self._options)
        return self._worker(request)


class PendingRequest:
    """A request for some samples; `begin` is for the thread that begins it, `wait` for another."""

    def __init__(self, subject: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._subject = subject
        self._clock = clock
        self._begun: tuple[float, int] | None = None

    def begin(self, pid: int) -> None:
        """Notes the process that works on it: not all requests are begun at once."""
        self._begun = (self._clock(), pid)

    def wait(self, answer: Future[Any]) -> Any:
        """Returns the answer, or raises its error. There is no limit on the time."""
        next_log = 0.0
        # Not by its own timeout: the error of the user's code may be a TimeoutError.
        while not futures.wait([answer], _CHECK_INTERVAL_SECONDS).done:
            if self._begun is None:
                continue
            now = self._clock()
            begun, pid = self._begun
            if now - begun >= _SLOW_SECONDS and now >= next_log:
                next_log = now + _REPEAT_SECONDS
                log.warning(
                    "%s: process %d has worked on it for %.0f s and has not returned; batches wait",
                    *(self._subject, pid, now - begun),
                )
        return answer.result()
