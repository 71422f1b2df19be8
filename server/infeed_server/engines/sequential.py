"""The engine of sequential pipelines: a `tf.data.Dataset` read front to back.

A dataset has no random access, so a position is reached by reading up to it. The engine keeps a
few readers, each with a window of what it read last: the ranks of one job, which ask for
neighbouring positions, share a reader, and one that asks for something long gone gets its own.
"""

from __future__ import annotations

import threading

from infeed.errors import InfeedError, InvalidRequestError, ServerError
from infeed.spec import PipelineSpec
from infeed_server.engines.base import Answer, Request
from infeed_server.engines.reader import DatasetReader, LeftWindowError, Wanted
from infeed_server.engines.sequence import SequentialSession, shutting_down
from infeed_server.pipeline.sequential import SequentialPlan

_MAX_READERS = 4
"""Iterators over one dataset at a time; the one unused longest is closed first."""

_RANKS = 1024
"""The largest world size that a data set without an order is expected to serve."""


class SequentialEngine:
    """Serves a sequential pipeline."""

    def __init__(self, plan: SequentialPlan) -> None:
        self._plan = plan
        self._readers: list[DatasetReader] = []
        self._sessions: set[SequentialSession] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    def open(self, slots: int, epochs: int) -> SequentialSession:
        per_batch = slots * sum(field.sample_bytes or 0 for field in self.spec.wire_spec)
        session = SequentialSession(
            lambda request, wanted: self._answer(request, epochs, wanted), per_batch, self._left
        )
        with self._lock:
            if self._closed:
                raise shutting_down()
            self._sessions.add(session)
        session.start(f"infeed-sequence-{self.spec.name}")
        return session

    def warm(self) -> None:
        size = self.spec.batch_size
        request = Request(self.spec.seed, 0, self.spec.stride(size), size)
        self._answer(request, 0, lambda: not self._closed)

    def queued_requests(self) -> int:
        with self._lock:
            return sum(session.queued for session in self._sessions)

    def unsent_batches(self) -> int:
        with self._lock:
            return sum(session.unsent for session in self._sessions)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions, readers = list(self._sessions), self._readers
            self._readers = []
        for session in sessions:
            session.close()
        for reader in readers:
            reader.close()

    def _left(self, session: SequentialSession) -> None:
        with self._lock:
            self._sessions.discard(session)

    def _answer(self, request: Request, epochs: int, wanted: Wanted) -> Answer:
        """Reads on to the request and answers it."""
        while True:
            reader = self._reader(request, epochs)
            try:
                answer = reader.answer(request, wanted)
            except LeftWindowError:
                continue  # Another rank read far ahead meanwhile; a reader behind it is needed.
            except InfeedError:
                self._forget(reader)
                raise
            except Exception as error:
                self._forget(reader)
                raise self._plan.explain(error) or ServerError(str(error)) from error
            if answer is None:  # the reader stays good for others
                raise shutting_down()
            return answer

    def _reader(self, request: Request, epochs: int) -> DatasetReader:
        """The reader that has the least way to the request, or a new one."""
        with self._lock:
            if self._closed:
                raise shutting_down()
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
            others = [other for other in self._readers if other is not reader]
            self._readers = [*others, reader][-_MAX_READERS:]
            unused = [other for other in others if other not in self._readers]
        for other in unused:
            other.close()
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
        reader.close()
