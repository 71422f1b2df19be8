"""The sequential engine: for a user's dataset, and other backends without random access.

A dataset has no random access, so a position is reached by reading up to it. The ranks of one job,
which request neighbouring positions, share a reader; jobs at other positions have others.
"""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import dataclass, replace
from functools import partial

from infeed.shared.errors import InfeedError, ServerError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.dataset import DatasetRequest, RegisteredDataset
from infeed_server.engines.base import (
    Answer,
    Engine,
    Request,
    Trainer,
    requires_other_engine,
    shutting_down,
)
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.sequential import errors
from infeed_server.engines.sequential.base import DatasetBackend
from infeed_server.engines.sequential.ranks import DISCONNECT_TIMEOUT_SECONDS, RankTracker
from infeed_server.engines.sequential.session import SequentialSession
from infeed_server.engines.sequential.shared_reader import IsWanted, SharedReader, WrongReaderError
from infeed_server.engines.sequential.window import ReadKey
from infeed_server.engines.state_clock import PipelineState, StateClock, StateSeconds
from infeed_server.processes.periodic import PeriodicTask

log = logging.getLogger(__name__)

_MAX_READERS = 8
"""Readers of one dataset at a time. A new one replaces the oldest idle one; where all are in use,
it is refused, since two jobs would otherwise replace each other's reader at every batch."""

_MAX_WINDOW_BYTES = 512 << 20
"""Bytes of all windows of one pipeline, unless their minimum of a few steps is more."""

_IDLE_CHECK_INTERVAL_SECONDS = 10.0
"""Between checks for idle readers, which hold the memory of their windows."""


@dataclass(eq=False)
class _Stream:
    """One stream, with its current reader."""

    trainer: Trainer
    epochs: int
    reader: SharedReader | None = None


class SequentialEngine(Engine):
    """Serves a sequential pipeline."""

    def __init__(self, dataset: DatasetBackend, budget: MemoryBudget) -> None:
        super().__init__(budget)
        self._dataset = dataset
        self._readers: list[SharedReader] = []
        self._sessions: set[SequentialSession] = set()
        self._reading = 0
        """Blocks that are read now, by any reader."""
        self._clock = StateClock(self._state)
        self._lock = threading.Lock()
        self._closed = False
        self._idle_checks = PeriodicTask(
            f"idle-{self.spec.name}", _IDLE_CHECK_INTERVAL_SECONDS, self._close_idle_readers
        )
        self._idle_checks.start()

    @property
    def spec(self) -> PipelineSpec:
        return self._dataset.spec

    def register(self, request: DatasetRequest, caller: str) -> RegisteredDataset:
        return self._dataset.register(request, caller)

    def open(
        self,
        slots: int,  # noqa: ARG002 - each request has its slots
        epochs: int,
        trainer: Trainer,
    ) -> SequentialSession:
        if trainer.job_name and not self._dataset.supports_jobs:
            raise requires_other_engine(self.spec.name, "jobs to take part in")
        if not trainer.feed_id:
            trainer = replace(trainer, feed_id=uuid.uuid4().hex)
        stream = _Stream(trainer, epochs)
        with self._lock:
            if self._closed:
                raise shutting_down()
            session = SequentialSession(
                partial(self._answer, stream),
                self._budget.open_quota(self.spec.name),
                on_sent=partial(self._on_sent, stream),
                on_closed=partial(self._on_closed, stream),
                on_queue=self._clock.update,
            )
            self._sessions.add(session)
        session.start(f"infeed-sequence-{self.spec.name}")
        return session

    def warm_up(self) -> Answer:
        size = self.spec.batch_size
        request = Request(self.spec.seed, 0, self.spec.stride(size), size)
        stream = _Stream(Trainer(feed_id=uuid.uuid4().hex), 0)
        try:
            return self._answer(stream, request, lambda: not self._closed)
        finally:
            if stream.reader is not None and self.spec.guarantee.resume == "none":
                self._discard(stream.reader)  # no other stream can use it
            self._disconnect(stream)

    def queued_requests(self) -> int:
        with self._lock:
            return sum(session.queued for session in self._sessions)

    def window_bytes(self) -> int:
        with self._lock:
            return sum(reader.window_bytes for reader in self._readers)

    def state_seconds(self) -> StateSeconds:
        return self._clock.seconds()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions, readers = list(self._sessions), self._readers
            self._readers = []
        self._idle_checks.stop()
        for session in sessions:
            session.close()
        for reader in readers:
            reader.close()

    def _state(self) -> PipelineState:
        if self._reading:
            return "transform"  # what of it is reading, only the data set knows
        queued = any(session.queued for session in tuple(self._sessions))
        return "no_budget" if queued else "no_request"

    def _count_reading(self, change: int) -> None:
        with self._lock:
            self._reading += change
        self._clock.update()

    def _on_sent(self, stream: _Stream, request: Request) -> None:
        if (reader := stream.reader) is not None:
            reader.on_sent(stream.trainer, request.start)

    def _on_closed(self, stream: _Stream, session: SequentialSession) -> None:
        with self._lock:
            self._sessions.discard(session)
        self._clock.update()
        self._disconnect(stream)

    def _disconnect(self, stream: _Stream) -> None:
        reader, stream.reader = stream.reader, None
        if reader is not None:
            reader.disconnect(stream.trainer)

    def _close_idle_readers(self) -> None:
        """Closes readers idle for longer than a trainer takes to reconnect."""
        with self._lock:
            idle = {
                reader
                for reader in self._readers
                if (reader.idle_seconds or 0.0) >= DISCONNECT_TIMEOUT_SECONDS
            }
            self._readers = [reader for reader in self._readers if reader not in idle]
        for reader in idle:
            reader.close()

    def _answer(self, stream: _Stream, request: Request, is_wanted: IsWanted) -> Answer:
        """Reads up to a request and returns its answer."""
        while True:
            reader = stream.reader or self._connect(stream, request)
            try:
                answer = reader.answer(request, stream.trainer.rank, is_wanted)
            except WrongReaderError:
                self._disconnect(stream)
                continue
            except InfeedError:
                self._discard(reader)
                raise
            except Exception as error:
                self._discard(reader)
                raise self._dataset.translate_error(error) or ServerError(str(error)) from error
            if answer is None:  # only this stream is closed; the reader stays usable
                raise shutting_down()
            return answer

    def _connect(self, stream: _Stream, request: Request) -> SharedReader:
        """Connects a stream to the reader closest before its request, or to a new one."""
        trainer = stream.trainer
        stride = self.spec.stride(request.slots)
        step = trainer.world_size * stride
        begin = max(0, request.start - trainer.rank * stride)
        with self._lock:
            if self._closed:
                raise shutting_down()
            key = ReadKey(request.seed, request.slots, stream.epochs)
            if self._dataset.supports_jobs:
                key = key._replace(job_name=trainer.job_name, remainder=trainer.remainder)
            usable = [
                reader
                for reader in self._readers
                if reader.key == key and reader.can_serve(trainer, request.start, step)
            ]
            replaced = None
            if usable:
                reader = max(usable, key=lambda candidate: candidate.start)
                self._readers.remove(reader)
            else:
                self._check_can_start(trainer, request.start, step)
                replaced = self._remove_idle_reader()
                reader = SharedReader(
                    self._dataset,
                    key,
                    RankTracker(trainer.world_size, begin, step),
                    lambda: _MAX_WINDOW_BYTES // max(2, len(self._readers)),
                    trainer.caller,
                    self._count_reading,
                )
            self._readers.append(reader)
            reader.connect(trainer, begin, step)
            stream.reader = reader
        if replaced is not None:
            replaced.close()
        if not usable and begin:
            log.info("%s: rereads the data up to position %d", self.spec.name, request.start)
        return reader

    def _remove_idle_reader(self) -> SharedReader | None:
        """Removes and returns the least recently used idle reader, where there are too many."""
        if len(self._readers) < _MAX_READERS:
            return None
        for reader in self._readers:
            if reader.idle_seconds is not None:
                self._readers.remove(reader)
                return reader
        raise errors.too_many_jobs(self.spec.name, _MAX_READERS)

    def _check_can_start(self, trainer: Trainer, start: int, step: int) -> None:
        """Raises `CursorError` where a new reader cannot repeat what was read before `start`."""
        if self.spec.guarantee.resume == "none" and start >= step:
            raise errors.cannot_continue(self.spec, trainer, start)

    def _discard(self, reader: SharedReader) -> None:
        with self._lock:
            self._readers = [other for other in self._readers if other is not reader]
        reader.close()
