"""The sequential engine, for a user's dataset and other backends without random access.

Without random access, the engine reaches a position by reading up to it. The ranks of one job,
which request neighbouring positions, share a reader; jobs at other positions have their own.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from infeed.shared.errors import CursorError, InfeedError, ServerUnavailableError
from infeed_server.engines.base import (
    Answer,
    EndOfData,
    Engine,
    Request,
    Trainer,
    shutting_down,
)
from infeed_server.engines.figures import Figures
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.state_clock import PipelineState, StateClock
from infeed_service.sequential.ranks import RankTracker
from infeed_service.sequential.session import SequentialSession
from infeed_service.sequential.shared_reader import SharedReader, WrongReaderError
from infeed_service.sequential.window import DatasetBackend, ReadKey, cut_batch

log = logging.getLogger(__name__)

_MAX_READERS = 8
"""Concurrent readers of one dataset. A new one replaces the oldest idle one; if none is idle, it is
refused, since two jobs would otherwise replace each other's reader at every batch."""

_MAX_WINDOW_BYTES = 512 << 20
"""Bytes of all windows of one pipeline; more only if a few steps, their minimum, need more."""

_Found = tuple["Future[Answer]", Callable[[], Answer]]
"""A request's future, and the function that makes its answer or raises its error."""


class SequentialEngine(Engine):
    """Serves a sequential pipeline. One condition guards the engine, its sessions and readers."""

    def __init__(self, dataset: DatasetBackend, budget: MemoryBudget) -> None:
        super().__init__(dataset.spec, budget)
        self._dataset = dataset
        self._readers: list[SharedReader] = []
        """Sorted by their last connection, oldest first."""
        self._sessions: set[SequentialSession] = set()
        self._changed = threading.Condition()
        self._clock = StateClock(self._state)
        self._closed = False

    def open(self, slots: int, epochs: int, trainer: Trainer) -> SequentialSession:  # noqa: ARG002
        if not trainer.feed_id:
            trainer = replace(trainer, feed_id=uuid.uuid4().hex)
        with self._changed:
            if self._closed:
                raise shutting_down()
            quota = self.budget.open_quota(self.spec.name)
            session = SequentialSession(
                trainer, epochs, quota, self._changed, self._serve, self._on_closed
            )
            self._sessions.add(session)
        return session

    def warm_up(self) -> Answer:
        size = self.spec.batch_size
        session = self.open(size, 0, Trainer())
        try:
            request = Request(self.spec.seed, 0, self.spec.stride(size), size)
            return session.submit(request).result()
        finally:
            with self._changed:
                if session.reader is not None and not self.spec.guarantee.can_resume:
                    self._discard(session.reader)  # no other stream can use it
            session.close()

    def figures(self) -> Figures:
        with self._changed:
            return Figures(
                queued_requests=sum(session.queued for session in self._sessions),
                window_bytes=sum(reader.window.nbytes for reader in self._readers),
                state_seconds=self._clock.seconds(),
            )

    def close(self) -> None:
        with self._changed:
            self._closed = True
            sessions = list(self._sessions)
            for reader in list(self._readers):
                self._discard(reader)
        for session in sessions:
            session.close()

    def _state(self) -> PipelineState:
        if any(reader.is_reading for reader in tuple(self._readers)):
            return "transform"  # only the data set knows which part of it is reading
        queued = any(session.queued for session in tuple(self._sessions))
        return "no_budget" if queued else "no_request"

    def _on_progress(self, reader: SharedReader) -> None:
        """Serves the streams of a reader that has read a block or has ended."""
        with self._changed:
            if reader.has_ended:
                self._discard(reader)
            sessions = [session for session in self._sessions if session.reader is reader]
        self._serve(sessions)

    def _on_closed(self, session: SequentialSession) -> None:
        with self._changed:
            self._sessions.discard(session)
            self._disconnect(session)
        self._clock.update()

    def _disconnect(self, session: SequentialSession) -> None:
        if session.reader is not None and session.stream is not None:
            session.reader.disconnect(session.stream)
            self._changed.notify_all()
        session.reader = session.stream = None

    def _discard(self, reader: SharedReader) -> None:
        self._readers = [other for other in self._readers if other is not reader]
        reader.close()

    def _serve(self, sessions: Iterable[SequentialSession]) -> None:
        """Answers the requests of sessions whose data has been read."""
        found: list[_Found] = []
        with self._changed:
            for session in sessions:
                while request := session.start_next():
                    make = self._find(session, request)
                    if make is None:
                        break
                    found.append((session.finish_next(), make))
            self._changed.notify_all()
        self._clock.update()
        for future, make in found:
            try:
                future.set_result(make())
            except Exception as error:  # noqa: BLE001 - it ends the stream
                future.set_exception(error)

    def _find(self, session: SequentialSession, request: Request) -> Callable[[], Answer] | None:
        """Returns a function that makes the answer or raises its error; None before it is read."""
        try:
            while True:
                reader = session.reader or self._connect(session, request)
                assert session.stream is not None
                if session.stream.request is not request:
                    reader.ranks.on_request(session.stream, request)
                try:
                    if not reader.has_read(request):
                        return None
                except WrongReaderError:
                    self._disconnect(session)
                    continue
                break
        except InfeedError as error:
            return partial(_raise, error)
        needed = request.min_position_count or (request.start + 1 if request.count else 0)
        end = reader.end_before(needed)
        if end is not None:
            return partial(EndOfData, end)
        return partial(
            cut_batch,
            self.spec.wire_spec,
            reader.window.covering(request),
            request,
            last_epoch=max(session.epochs - 1, 0),
            position_count=reader.end_before(request.step_end),
        )

    def _connect(self, session: SequentialSession, request: Request) -> SharedReader:
        """Connects a session to the reader closest before its request, or to a new one."""
        trainer = session.trainer
        stride = self.spec.stride(request.slots)
        step = trainer.world_size * stride
        begin = max(0, request.start - trainer.rank * stride)
        remainder = trainer.remainder or self.spec.remainder
        key = ReadKey(request.seed, request.slots, session.epochs, remainder, trainer.job_name)
        usable = [
            reader
            for reader in self._readers
            if reader.key == key and reader.can_serve(trainer, request.start, step)
        ]
        if usable:
            reader = max(usable, key=lambda candidate: candidate.start)
            self._readers.remove(reader)
        else:
            self._check_can_start(trainer, request.start, step)
            self._make_room()
            reader = SharedReader(
                self._dataset,
                key,
                RankTracker(trainer.world_size, begin, step),
                lambda: _MAX_WINDOW_BYTES // max(2, len(self._readers)),
                self._changed,
                self._on_progress,
            )
            reader.start_reading()
            if begin:
                log.info("%s: rereads the data up to position %d", self.spec.name, request.start)
        self._readers.append(reader)
        session.reader, session.stream = reader, reader.connect(trainer, begin, step)
        return reader

    def _make_room(self) -> None:
        """Closes the least recently used idle reader if there are too many."""
        if len(self._readers) < _MAX_READERS:
            return
        idle = [reader for reader in self._readers if reader.ranks.idle_seconds is not None]
        if not idle:
            raise ServerUnavailableError(
                f"{self.spec.name!r} has {_MAX_READERS} jobs that read at different positions, the "
                "maximum; use another server, or wait until a job ends",
                pipeline=self.spec.name,
            )
        self._discard(idle[0])

    def _check_can_start(self, trainer: Trainer, start: int, step: int) -> None:
        """Raises `CursorError` if a new reader cannot repeat the data read before `start`."""
        if not self.spec.guarantee.can_resume and start >= step:
            raise CursorError(
                f"{self.spec.name!r} cannot continue at position {start} for rank {trainer.rank} "
                f"of {trainer.world_size}: its batches have no order and this feed's read is gone, "
                "so a new one would repeat samples; start without a cursor, or make the dataset "
                "deterministic (seeds, options.deterministic) on the local engine",
                pipeline=self.spec.name,
                position=start,
            )


def _raise(error: InfeedError) -> Answer:
    raise error
