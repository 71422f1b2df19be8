"""The session of one stream of a sequential pipeline: its requests and its limit of work ahead."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from infeed_server.engines.base import Answer, Request, Session, Trainer, shutting_down
from infeed_server.engines.memory_budget import StreamQuota
from infeed_service.sequential.ranks import RankStream
from infeed_service.sequential.shared_reader import SharedReader


class SequentialSession(Session):
    """A session whose requests are answered in the order of the dataset. No work starts while
    unsent answers fill its quota, so a stalled stream holds a fixed amount and does not advance the
    dataset."""

    def __init__(
        self,
        trainer: Trainer,
        epochs: int,
        quota: StreamQuota,
        changed: threading.Condition,
        serve: Callable[[Sequence[SequentialSession]], None],
        on_closed: Callable[[SequentialSession], None],
    ) -> None:
        """`changed` guards the session. `serve` answers the requests that can be answered now."""
        super().__init__(quota)
        self.trainer = trainer
        self.epochs = epochs
        self.reader: SharedReader | None = None
        self.stream: RankStream | None = None
        self._changed = changed
        self._serve = serve
        self._on_closed = on_closed
        self._pending: deque[tuple[Request, Future[Answer]]] = deque()
        self._unsent: deque[int] = deque()
        self._began_at: float | None = None
        """The time at which work on the first pending request began."""
        self._closed = False

    @property
    def queued(self) -> int:
        """The number of requests whose work has not started."""
        return len(self._pending) - (self._began_at is not None)

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        with self._changed:
            if self._closed:
                future.set_exception(shutting_down())
                return future
            self._pending.append((request, future))
        self._serve([self])
        return future

    def on_sent(self) -> None:
        self._quota.release()
        with self._changed:
            position = self._unsent.popleft()
            if self.reader is not None and self.stream is not None:
                self.reader.ranks.on_sent(self.stream, position)
        self._serve([self])

    def close(self) -> None:
        self._quota.close()
        with self._changed:
            self._closed = True
            pending = [
                future
                for _, future in self._pending
                if future.running() or future.set_running_or_notify_cancel()
            ]
            self._pending.clear()
            self._began_at = None
        self._on_closed(self)
        for future in pending:
            future.set_exception(shutting_down())

    def start_next(self) -> Request | None:
        """Returns the first pending request if the quota has room for its answer."""
        while self._pending:
            request, future = self._pending[0]
            if self._began_at is None:
                if not self._quota.try_acquire():
                    return None
                if not future.set_running_or_notify_cancel():
                    self._quota.release()
                    self._pending.popleft()
                    continue
                self._began_at = time.perf_counter()
            return request
        return None

    def finish_next(self) -> Future[Answer]:
        """Removes the first pending request, whose data is read, and returns its future."""
        request, future = self._pending.popleft()
        assert self._began_at is not None
        if request.span is not None:
            request.span.add("transform", time.perf_counter() - self._began_at)
        self._began_at = None
        self._unsent.append(request.start)
        if self.reader is not None and self.stream is not None:
            self.reader.ranks.on_answer(self.stream)
        return future
