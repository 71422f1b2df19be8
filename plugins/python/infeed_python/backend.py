"""The backend of the user's Python code: a thread of the server, or worker processes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed.shared.spec.dtypes import Array
from infeed_formats.values import Field
from infeed_python.daemon_executor import DaemonExecutor
from infeed_python.dataset import DatasetOptions, Description
from infeed_python.work_meter import WorkMeter
from infeed_python.worker import Request, Worker
from infeed_python.worker_pool import (
    MAX_REPEATS,
    OnBegin,
    PoolClosedError,
    WorkerEndedError,
    WorkerPool,
)
from infeed_server.storage.files import abbreviate

log = logging.getLogger(__name__)

_MAX_LISTED = 8
"""Samples that an error lists."""

_SLOW_SECONDS = 60.0
"""Seconds after which a request in progress is logged: with fewer, slow but healthy ones are."""

_WORKER = f"{Worker.__module__}:{Worker.__name__}"


class Backend:
    """Calls the methods of `Worker`, on one thread of the server or in several processes."""

    def __init__(self, label: str, processes: int, options: DatasetOptions | None = None) -> None:
        """`label` names the code in messages. Raises `SourceError` if a process cannot start."""
        self.label = label
        self._workers = max(1, processes)
        self.meter = WorkMeter(self._workers)
        with self._errors():
            self.runner: WorkerPool | _ThreadRunner = (
                WorkerPool(f"worker of {label}", processes, _WORKER, options)
                if processes
                else _ThreadRunner(options)
            )

    def close(self) -> None:
        self.runner.close()

    def open(self) -> Description:
        """Opens the data set. Raises the errors of a worker, and `SourceError` if none answers."""
        description: Description = self._submit("open")()
        return description

    def infer(self, request: Request) -> tuple[Field, ...]:
        """Returns the fields of samples or results. Raises as `open` does."""
        remedy = "; declare the fields, so that no sample is read at start: fields: ..."
        fields: tuple[Field, ...] = self._submit("infer", request, remedy=remedy)()
        return fields

    def read(self, request: Request) -> dict[str, Array]:
        """Returns the columns of samples or results, read by all workers. Raises as `open` does."""
        count = len(request.indices)
        size = -(-count // self._workers) or 1
        rows = range(0, count, size)
        parts = [request.part(slice(row, row + size)) for row in rows] or [request]
        answers = [self._submit("read", part) for part in parts]
        columns: list[dict[str, Array]] = []
        for part, answer in zip(parts, answers, strict=True):
            read, slowest = answer()
            self.meter.on_read(len(part.indices), *slowest)
            columns.append(read)
        if len(columns) == 1:
            return columns[0]
        return {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}

    def _submit(
        self, method: str, request: Request | None = None, *, remedy: str = ""
    ) -> Callable[[], Any]:
        """Sends a request; returns the function that waits for its answer."""
        subject, task = self.label, f"opened {self.label}"
        if request is not None:
            subject = f"samples {abbreviate(request.indices, _MAX_LISTED)} of {self.label}"
            task = f"read {subject}"
        begun: list[tuple[float, int]] = []
        key = object()

        def begin(pid: int) -> None:
            self.meter.begin(key)
            begun[:] = [(time.monotonic(), pid)]

        def wait() -> Any:
            # Not `answer.result(timeout)`: the user's code may itself raise a TimeoutError.
            while not futures.wait([answer], _SLOW_SECONDS).done:
                for began, pid in begun:
                    if (seconds := time.monotonic() - began) >= _SLOW_SECONDS / 2:
                        log.warning(
                            "%s: process %d has worked for %.0f s without returning; batches wait",
                            *(subject, pid, seconds),
                        )
            with self._errors(task, remedy):
                return answer.result()

        with self._errors():
            answer = self.runner.submit((method, (request,) if request else ()), begin)
        answer.add_done_callback(lambda _: self.meter.end(key))
        return wait

    @contextmanager
    def _errors(self, task: str = "", remedy: str = "") -> Iterator[None]:
        """Turns errors of worker processes in the block into `SourceError`."""
        try:
            yield
        except PoolClosedError:
            text = f"{self.label} is no longer read: the server is shutting down"
        except WorkerEndedError as error:
            text = (
                f"all {1 + MAX_REPEATS} worker processes that {task} ended, the last with "
                f"{error}; see its output for the reason{remedy}"
            )
        except OSError as error:
            text = (
                f"cannot start a worker process of {self.label}: {error.strerror}; reduce "
                "processes, or raise the limits on open files and processes"
            )
        else:
            return
        raise SourceError(text, file=self.label)


class _ThreadRunner:
    """Makes the worker and answers all requests on one thread: few data sets are thread-safe, and
    an SQLite connection works only on the thread that opened it."""

    def __init__(self, options: DatasetOptions | None) -> None:
        self._thread = DaemonExecutor("infeed-python")
        self._options = options
        self._worker: Worker | None = None

    def submit(self, call: Any, on_begin: OnBegin) -> Future[Any]:
        """Returns the future of the answer. Raises `PoolClosedError`."""
        try:
            return self._thread.submit(self._perform, call, on_begin)
        except RuntimeError:  # the executor is closed
            raise PoolClosedError from None

    def close(self) -> None:
        self._thread.close()

    def _perform(self, call: Any, on_begin: OnBegin) -> Any:
        on_begin(os.getpid())
        if self._worker is None:
            self._worker = Worker(self._options)
        return self._worker(call)
