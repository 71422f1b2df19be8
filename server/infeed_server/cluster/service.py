"""The service as a server sees it: is it there, and which data sets are registered with it?"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infeed.errors import ConfigError, InfeedError, ServerUnavailableError, SourceError
from infeed.inquiry import Dispatcher, unreachable
from infeed.registered import Compression
from infeed_server.cluster.census import check_versions

log = logging.getLogger(__name__)

READY_SECONDS = 45.0
"""How long a server waits at its start for the dispatcher and a first worker to answer: images
are pulled and TensorFlow is imported meanwhile."""

LOOK_SECONDS = 5.0
"""Between two looks at the dispatcher and the workers."""

SILENT_SECONDS = 20.0
"""After so long without an answer, trainers are told that the service is not there: a restart
takes less."""

GONE_SECONDS = 120.0
"""After so long, those that wait for a batch are told to give up. TensorFlow's own client would
wait for ever."""

_COMPRESSION: dict[Compression, str | None] = {"none": None, "snappy": "SNAPPY", "auto": "AUTO"}

Told = Callable[[str | None], None]
"""Is told what is wrong with the service, or None as soon as nothing is."""


class Service:
    """One dispatcher and its workers. Thread-safe."""

    def __init__(self, dispatcher: str, compression: Compression = "none") -> None:
        """`dispatcher` is host:port, as trainers reach it too; `compression` what they get unless
        they ask for another."""
        self.address = dispatcher
        self.compression: Compression = compression
        self._dispatcher = Dispatcher(dispatcher)
        self.lost_workers: tuple[str, ...] = ()
        """Those that did not answer when they were asked last, host:port."""
        self.answering_workers = 0
        """How many others there are."""
        self._answered = time.monotonic()
        self._why: str | None = None
        """What was wrong when it was looked at last."""
        self._problem: str | None = None
        """What is told to be wrong."""
        self._told: Told = lambda _: None
        self._telling = threading.Lock()
        self._known: set[str] = set()
        self._registering = threading.Lock()
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="infeed-service", daemon=True)

    def wait_until_ready(self, seconds: float | None = None) -> None:
        """Returns when the dispatcher answers, and one of its workers at least.

        Raises `ServerUnavailableError` that says what is missing after so many seconds.
        """
        seconds = READY_SECONDS if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while problem := self._look():
            if time.monotonic() >= deadline:
                raise ServerUnavailableError(
                    f"TensorFlow's data service is not ready after {seconds:g} s: {problem}",
                    target=self.address,
                )
            time.sleep(0.2)

    def keep_looking(self) -> None:
        """Looks again and again, until it is closed. Before, `require` would not know better."""
        self._watcher.start()

    def watch(self, told: Told) -> None:
        """From now on `told` hears of what is wrong, in a thread of its own; also of what is so
        already."""
        with self._telling:
            self._told = told
            if self._problem:
                told(self._problem)

    def close(self) -> None:
        self._closed.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def require(self) -> None:
        """Raises `SourceError` when the dispatcher, or all workers, have not answered for long:
        nobody gets the rest of what was being read."""
        silent = time.monotonic() - self._answered
        if silent >= GONE_SECONDS:
            raise SourceError(
                f"TensorFlow's data service at {self.address} has not answered for {silent:.0f} s: "
                f"{self._why}",
                target=self.address,
            )

    def register(
        self, dataset_id: str, compression: Compression, make: Callable[[], tf.data.Dataset]
    ) -> None:
        """Makes and registers the data set of this name, unless that was done.

        Raises `ServerUnavailableError` when the dispatcher does not answer, and `ConfigError` where
        TensorFlow's version differs among the processes, and with what it finds wrong itself.
        """
        with self._registering:
            if dataset_id in self._known and self._dispatcher.element_spec(dataset_id) is not None:
                return  # a dispatcher that lost its journal knows none
            dataset = make()
            # This asks the dispatcher too, where TensorFlow would try for an hour.
            check_versions(self.address, tf.__version__, gone=self.lost_workers)
            try:
                tf.data.experimental.service.register_dataset(
                    f"grpc://{self.address}",
                    dataset,
                    compression=_COMPRESSION[compression],
                    dataset_id=dataset_id,
                )
            except (tf.errors.OpError, ValueError) as error:
                raise ConfigError(
                    f"TensorFlow's data service at {self.address} does not take it: {_said(error)}"
                ) from error
            self._known.add(dataset_id)

    def read(self, dataset_id: str, job_name: str) -> tf.data.Dataset:
        """What the job's consumers together are given, as far as it comes here."""
        return tf.data.experimental.service.from_dataset_id(
            processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service=f"grpc://{self.address}",
            dataset_id=dataset_id,
            job_name=job_name,
        )

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            problem = self._why = self._look()
            silent = time.monotonic() - self._answered
            if problem and silent < SILENT_SECONDS:
                continue
            with self._telling:
                self._tell(problem)

    def _tell(self, problem: str | None) -> None:
        if (problem is None) != (self._problem is None):
            if problem:
                log.error("%s", problem)
            else:
                log.info("TensorFlow's data service at %s answers again", self.address)
            self._told(problem)
        self._problem = problem

    def _look(self) -> str | None:
        """What is wrong now. Workers count as gone together only: one of several is no loss."""
        try:
            workers = self._dispatcher.workers()
            missing = unreachable(workers)
            self.lost_workers = tuple(missing)
            self.answering_workers = len(workers) - len(missing)
        except InfeedError as error:
            return error.message
        if not workers:
            return (
                f"no worker has come to the dispatcher at {self.address}: start one with "
                f"`infeed worker --dispatcher {self.address}`"
            )
        if len(missing) == len(workers):
            return "; ".join(missing.values())
        self._answered = time.monotonic()
        return None


def _said(error: Any) -> str:
    return str(getattr(error, "message", error)).strip().splitlines()[0]


__all__ = ["GONE_SECONDS", "LOOK_SECONDS", "SILENT_SECONDS", "Service"]
