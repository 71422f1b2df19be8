"""The engine of what is read front to back: a user's dataset, or TensorFlow's data service.

A dataset has no random access, so a position is reached by reading up to it. The ranks of one job,
which ask for neighbouring positions, share a reader; jobs that are elsewhere have others.
"""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import dataclass, replace
from functools import partial

from infeed.errors import InfeedError, ServerError
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import PipelineSpec
from infeed_server.engines import refusals
from infeed_server.engines.base import Answer, Request, Trainer, made_here
from infeed_server.engines.blocks import Kind
from infeed_server.engines.budget import Budget
from infeed_server.engines.ranks import AWAY_SECONDS, Ranks
from infeed_server.engines.readable import Readable
from infeed_server.engines.reader import DatasetReader, LeftWindowError, Wanted
from infeed_server.engines.sequence import SequentialSession, shutting_down

log = logging.getLogger(__name__)

_MAX_READERS = 8
"""Iterators over one dataset at a time. Of those that nobody uses, the oldest goes first; where
all are in use, more are refused: they would throw each other out at every batch."""

_WINDOW_BYTES = 512 << 20
"""What the windows of one pipeline hold together, unless their few steps are more."""


@dataclass(eq=False)
class _Member:
    """One stream, and the reader that it is at."""

    trainer: Trainer
    epochs: int
    reader: DatasetReader | None = None


class SequentialEngine:
    """Serves a sequential pipeline."""

    def __init__(self, dataset: Readable, budget: Budget) -> None:
        self._dataset = dataset
        self._budget = budget
        self._readers: list[DatasetReader] = []
        self._sessions: set[SequentialSession] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._sweeper: threading.Timer | None = None

    @property
    def spec(self) -> PipelineSpec:
        return self._dataset.spec

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        return self._dataset.register(request)

    def open(  # the requests tell the slots
        self,
        slots: int,  # noqa: ARG002
        epochs: int,
        trainer: Trainer,
    ) -> SequentialSession:
        if trainer.job_name and not self._dataset.shared:
            raise made_here(self.spec.name, "jobs to take part in")
        known = trainer if trainer.feed_id else replace(trainer, feed_id=uuid.uuid4().hex)
        member = _Member(known, epochs)
        with self._lock:
            if self._closed:
                raise shutting_down()
            session = SequentialSession(
                partial(self._answer, member),
                self._budget.open(self.spec.name),
                sent=partial(self._sent, member),
                left=partial(self._left, member),
            )
            self._sessions.add(session)
        session.start(f"infeed-sequence-{self.spec.name}")
        return session

    def warm(self) -> None:
        size = self.spec.batch_size
        request = Request(self.spec.seed, 0, self.spec.stride(size), size)
        member = _Member(Trainer(feed_id=uuid.uuid4().hex), 0)
        try:
            self._answer(member, request, lambda: not self._closed)
        finally:
            if member.reader is not None and self.spec.guarantee.resume == "none":
                self._forget(member.reader)  # it is this member's, who will not come again
            self._leave(member)

    def queued_requests(self) -> int:
        with self._lock:
            return sum(session.queued for session in self._sessions)

    def unsent_batches(self) -> int:
        return self._budget.batches(self.spec.name)

    def unsent_bytes(self) -> int:
        return self._budget.bytes(self.spec.name)

    def window_bytes(self) -> int:
        with self._lock:
            return sum(reader.window_bytes for reader in self._readers)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions, readers = list(self._sessions), self._readers
            self._readers = []
            if self._sweeper is not None:
                self._sweeper.cancel()
        for session in sessions:
            session.close()
        for reader in readers:
            reader.close()

    def _sent(self, member: _Member, request: Request) -> None:
        if (reader := member.reader) is not None:
            reader.sent(member.trainer, request.start)

    def _left(self, member: _Member, session: SequentialSession) -> None:
        with self._lock:
            self._sessions.discard(session)
        self._leave(member)
        self._sweep()

    def _leave(self, member: _Member) -> None:
        reader, member.reader = member.reader, None
        if reader is not None:
            reader.leave(member.trainer)

    def _sweep(self, *, again: bool = False) -> None:
        """Closes the readers that nobody has used for long: what they read is of use to a trainer
        that comes back soon, and then to nobody. Looks again later as long as there are any."""
        with self._lock:
            if self._closed or (self._sweeper is not None and not again):
                return
            unused = {reader: reader.unused for reader in self._readers}
            old = [reader for reader, age in unused.items() if (age or 0.0) >= AWAY_SECONDS]
            self._readers = [reader for reader in self._readers if reader not in old]
            self._sweeper = None
            if any(unused[reader] is not None for reader in self._readers):
                self._sweeper = threading.Timer(AWAY_SECONDS, self._sweep, kwargs={"again": True})
                self._sweeper.daemon = True
                self._sweeper.start()
        for reader in old:
            reader.close()

    def _answer(self, member: _Member, request: Request, wanted: Wanted) -> Answer:
        """Reads on to the request and answers it."""
        while True:
            reader = member.reader or self._find(member, request)
            try:
                answer = reader.answer(request, member.trainer.rank, wanted)
            except LeftWindowError:
                self._leave(member)  # to where there is what it asks for
                continue
            except InfeedError:
                self._forget(reader)
                raise
            except Exception as error:
                self._forget(reader)
                raise self._dataset.explain(error) or ServerError(str(error)) from error
            if answer is None:  # the reader stays good for others
                raise shutting_down()
            return answer

    def _find(self, member: _Member, request: Request) -> DatasetReader:
        """The reader that has the least way to the request, or a new one; the member joins it."""
        step = member.trainer.world_size * self.spec.stride(request.slots)
        begin = max(0, request.start - member.trainer.rank * self.spec.stride(request.slots))
        with self._lock:
            if self._closed:
                raise shutting_down()
            kind = Kind(request.seed, request.slots, member.epochs)
            if self._dataset.shared:
                trainer = member.trainer
                kind = kind._replace(job_name=trainer.job_name, remainder=trainer.remainder)
            fit = [
                reader
                for reader in self._readers
                if reader.kind == kind and reader.takes(member.trainer, request.start, step)
            ]
            unused = None
            if fit:
                reader = max(fit, key=lambda candidate: candidate.oldest)
                self._readers.remove(reader)
            else:
                self._refuse_what_was_before(member.trainer, request.start, step)
                unused = self._make_room()
                reader = DatasetReader(
                    self._dataset,
                    kind,
                    Ranks(member.trainer.world_size, begin, step),
                    lambda: _WINDOW_BYTES // max(2, len(self._readers)),
                )
            self._readers.append(reader)
            reader.join(member.trainer, begin, step)
            member.reader = reader
        if unused is not None:
            unused.close()
        if not fit and begin:
            log.info("%s: reads up to position %d anew", self.spec.name, request.start)
        return reader

    def _make_room(self) -> DatasetReader | None:
        """Takes out the reader that nobody has used for longest, where there are too many."""
        if len(self._readers) < _MAX_READERS:
            return None
        for reader in self._readers:
            if reader.unused is not None:
                self._readers.remove(reader)
                return reader
        raise refusals.too_many_jobs(self.spec.name, _MAX_READERS)

    def _refuse_what_was_before(self, trainer: Trainer, start: int, step: int) -> None:
        """What was read of a dataset without an order can be read by nobody again."""
        if self.spec.guarantee.resume == "none" and start >= step:
            raise refusals.cannot_continue(self.spec, trainer, start)

    def _forget(self, reader: DatasetReader) -> None:
        with self._lock:
            self._readers = [other for other in self._readers if other is not reader]
        reader.close()
