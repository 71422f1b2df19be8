"""Client of the tf.data service: its availability, and the registration of data sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infeed.shared.errors import (
    ConfigError,
    InfeedError,
    ServerError,
    ServerUnavailableError,
    SourceError,
)
from infeed_server.processes.periodic import PeriodicTask
from infeed_service.dataset import Compression
from infeed_service.rpc import DispatcherClient, JournalMark, WorkerCheck

READY_TIMEOUT_SECONDS = 45.0
"""Wait for the dispatcher and a first worker at a server's start: they may still be pulling images
and importing TensorFlow."""

_READY_POLL_INTERVAL_SECONDS = 0.2

CHECK_INTERVAL_SECONDS = 5.0
"""Period of the checks of the dispatcher and the workers."""

UNAVAILABLE_TIMEOUT_SECONDS = 20.0
"""Silence after which the service is reported as unavailable: longer than a restart."""

LOST_TIMEOUT_SECONDS = 120.0
"""Silence after which requests for batches fail; TensorFlow's client has no timeout."""

_COMPRESSION: dict[Compression, str | None] = {"none": None, "snappy": "SNAPPY", "auto": "AUTO"}

StatusCallback = Callable[[str | None], None]
"""Called with the problem of the service, or with None while it is available."""


class DataServiceClient:
    """A client of one dispatcher and its workers. Thread-safe."""

    def __init__(
        self,
        dispatcher: str,
        compression: Compression = "none",
        find_own_problem: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`dispatcher` is host:port, which trainers must reach too. `compression` is the default
        for trainers. `find_own_problem` returns any reason known to this process why the service
        makes no progress."""
        self.address = dispatcher
        self.compression: Compression = compression
        self._dispatcher = DispatcherClient(dispatcher)
        self._find_own_problem = find_own_problem
        self._workers = WorkerCheck(self._dispatcher)
        self._mark = JournalMark(self._dispatcher)
        self.lost_journals = 0
        """Number of times that the dispatcher was found to have lost its journal."""
        self._last_answer = time.monotonic()
        self._problem: str | None = None
        self._callback: StatusCallback = lambda _: None
        self._journal_lock = threading.Lock()
        self._register_lock = threading.Lock()
        self._checks = PeriodicTask("service", CHECK_INTERVAL_SECONDS, self._check)

    @property
    def lost_workers(self) -> tuple[str, ...]:
        """Addresses, host:port, of workers that did not answer the last check."""
        return tuple(self._workers.silent)

    @property
    def answering_workers(self) -> int:
        """Number of workers that answered the last check."""
        return len(self._workers.tasks)

    def lost_for(self, seconds: float, after: float) -> tuple[str, ...]:
        """Returns the workers silent for at least this long, but not yet at the time `after`."""
        return self._workers.silent_for(seconds, after)

    def start(self) -> None:
        """Waits until the dispatcher and one of its workers answer, then checks them periodically
        until `close`. Raises `ServerUnavailableError` after the timeout."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while problem := self._find_problem():
            if time.monotonic() >= deadline:
                text = f"TensorFlow's data service is not ready after {READY_TIMEOUT_SECONDS:g} s"
                raise ServerUnavailableError(f"{text}: {problem}", target=self.address)
            time.sleep(_READY_POLL_INTERVAL_SECONDS)
        self._mark.place()
        self._checks.start()

    def watch(self, callback: StatusCallback) -> None:
        """Calls `callback` on a thread at each check, except for a short outage, which may be a
        restart."""
        self._callback = callback

    def close(self) -> None:
        self._checks.stop()

    def require(self) -> None:
        """Raises `SourceError` if the dispatcher or all workers have been silent so long that the
        rest of a read is lost."""
        silent_seconds = time.monotonic() - self._last_answer
        if silent_seconds >= LOST_TIMEOUT_SECONDS:
            silence = f"has not answered for {silent_seconds:.0f} s: {self._problem}"
            text = f"TensorFlow's data service at {self.address} {silence}"
            raise SourceError(text, target=self.address)

    def register(
        self, dataset_id: str, compression: Compression, make: Callable[[], tf.data.Dataset]
    ) -> None:
        """Makes and registers a data set, unless the dispatcher has it. Raises
        `ServerUnavailableError`, `ServerError` if the dispatcher cannot store the data set, and
        `ConfigError` if TensorFlow rejects it."""
        with self._register_lock:
            # This also checks that the dispatcher answers; TensorFlow would retry for an hour.
            if not self._dispatcher.has_dataset(dataset_id):
                self.check_journal()  # now, or a read that has begun would count as lost
                self._store(dataset_id, compression, make())

    def _store(self, dataset_id: str, compression: Compression, dataset: Any) -> None:
        try:
            tf.data.experimental.service.register_dataset(
                f"grpc://{self.address}",
                dataset,
                compression=_COMPRESSION[compression],
                dataset_id=dataset_id,
            )
        except (tf.errors.OpError, ValueError) as error:
            reason = str(getattr(error, "message", error)).strip().splitlines()[0]
            subject = f"the dispatcher at {self.address}"
            if isinstance(error, tf.errors.ResourceExhaustedError):
                text = f"{subject} cannot store the data set: {reason}; free space in its work"
                raise ServerError(f"{text} directory", target=self.address) from error
            text = f"{subject} rejects the data set: {reason}"
            raise ConfigError(text, target=self.address) from error

    def read(self, dataset_id: str, job_name: str) -> tf.data.Dataset:
        """Returns one consumer of the job, which receives a part of the job's elements."""
        return tf.data.experimental.service.from_dataset_id(
            processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service=f"grpc://{self.address}",
            dataset_id=dataset_id,
            job_name=job_name,
        )

    def check_journal(self) -> None:
        """Counts a loss of the dispatcher's journal. Raises the errors of `DispatcherClient`."""
        with self._journal_lock:
            if self._mark.is_lost():
                self.lost_journals += 1
                self._mark.place()

    def _check(self) -> None:
        self._problem = problem = self._find_problem()
        silent_seconds = time.monotonic() - self._last_answer
        if problem is None or silent_seconds >= UNAVAILABLE_TIMEOUT_SECONDS:
            self._callback(problem)

    def _find_problem(self) -> str | None:
        """Returns why no batch can be made now; None if one worker can make one."""
        if problem := self._find_own_problem():
            return problem
        try:
            self._workers.run()
            self.check_journal()
        except InfeedError as error:
            return error.message
        if self._workers.tasks:
            self._last_answer = time.monotonic()
            return None
        return "; ".join(silence.reason for silence in self._workers.silent.values()) or (
            f"no worker has registered with the dispatcher at {self.address}: start one with "
            f"`infeed worker --dispatcher {self.address}`"
        )
