"""The engine of sequential pipelines: a `tf.data.Dataset` read front to back.

A dataset has no random access, so a position is reached by reading up to it. The engine keeps a
few readers, each with a window of what it read last: the ranks of one job, which ask for
neighbouring positions, share a reader, and one that asks for something long gone gets its own.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from infeed.errors import (
    InfeedError,
    InvalidRequestError,
    ServerError,
    ServerUnavailableError,
)
from infeed.spec import PipelineSpec
from infeed_server.engines.base import Answer, Request
from infeed_server.engines.reader import DatasetReader
from infeed_server.pipeline.sequential import SequentialPlan

_MAX_READERS = 4
"""Iterators over one dataset at a time; the one unused longest is closed first."""

_WORKERS = 8
"""Threads that wait for readers, one for each request that is worked on."""


_RANKS = 1024
"""The largest world size that a data set without an order is expected to serve."""


class SequentialEngine:
    """Serves a sequential pipeline."""

    def __init__(self, plan: SequentialPlan) -> None:
        self._plan = plan
        self._readers: list[DatasetReader] = []
        self._lock = threading.Lock()
        self._waiting = 0
        self._closed = threading.Event()
        self._workers = ThreadPoolExecutor(_WORKERS, f"infeed-read-{plan.spec.name}")

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    def open(self, slots: int, epochs: int) -> SequentialSession:
        return SequentialSession(self, slots, epochs)

    def warm(self) -> None:
        size = self.spec.batch_size
        stride = self.spec.stride(size)
        self._answer(Request(self.spec.seed, 0, stride, size), 0, self._closed)

    def queued_requests(self) -> int:
        with self._lock:
            return self._waiting

    def unsent_batches(self) -> int:
        return 0

    def close(self) -> None:
        self._closed.set()
        self._workers.shutdown(cancel_futures=True)

    def submit(self, request: Request, epochs: int, over: threading.Event) -> Future[Answer]:
        """Answers a request later, unless `over` is set first."""
        try:
            future = self._workers.submit(self._answer, request, epochs, over)
        except RuntimeError:
            raise ServerUnavailableError("the server is shutting down") from None
        with self._lock:
            self._waiting += 1
        future.add_done_callback(self._answered)
        return future

    def _answered(self, _: Future[Answer]) -> None:
        with self._lock:
            self._waiting -= 1

    def _answer(self, request: Request, epochs: int, over: threading.Event) -> Answer:
        """Reads on to the request and answers it."""
        reader = self._reader(request, epochs)
        try:
            answer = reader.answer(request, lambda: not (over.is_set() or self._closed.is_set()))
        except InfeedError:
            self._forget(reader)
            raise
        except Exception as error:
            self._forget(reader)
            raise self._plan.explain(error) or ServerError(str(error)) from error
        if answer is None:  # the reader stays good for others
            raise ServerUnavailableError("the stream was closed before its answer was reached")
        return answer

    def _reader(self, request: Request, epochs: int) -> DatasetReader:
        """The reader that has the least way to the request, or a new one."""
        with self._lock:
            near = [
                reader
                for reader in self._readers
                if (reader.seed, reader.slots, reader.epochs)
                == (request.seed, request.slots, epochs)
                and reader.reaches(request.start)
            ]
            if near:
                reader = max(near, key=lambda candidate: candidate.oldest)
            else:
                self._refuse_resume(request)
                reader = DatasetReader(self._plan, request.seed, request.slots, epochs)
            self._readers = [other for other in self._readers if other is not reader]
            self._readers = [*self._readers, reader][-_MAX_READERS:]
            return reader

    def _refuse_resume(self, request: Request) -> None:
        # The ranks of one job begin near position 0; anything further on is a resumed job.
        if self.spec.guarantee.resume == "none" and request.start >= (
            _RANKS * self.spec.stride(request.slots)
        ):
            raise InvalidRequestError(
                f"{self.spec.name!r} cannot continue at position {request.start}: its dataset is "
                "not deterministic, so what came before cannot be told apart; start without a "
                "cursor, or make the dataset deterministic (seeds, options.deterministic)",
                pipeline=self.spec.name,
            )

    def _forget(self, reader: DatasetReader) -> None:
        with self._lock:
            self._readers = [other for other in self._readers if other is not reader]


class SequentialSession:
    """One stream of a sequential pipeline."""

    def __init__(self, engine: SequentialEngine, slots: int, epochs: int) -> None:
        self._engine = engine
        self._slots = slots
        self._epochs = epochs
        self._futures: list[Future[Answer]] = []
        self._over = threading.Event()

    def submit(self, request: Request) -> Future[Answer]:
        future = self._engine.submit(request, self._epochs, self._over)
        self._futures = [other for other in self._futures if not other.done()]
        self._futures.append(future)
        return future

    def sent(self) -> None:
        """Nothing is held for the stream: the readers' windows are bounded by themselves."""

    def close(self) -> None:
        self._over.set()
        for future in self._futures:
            future.cancel()
