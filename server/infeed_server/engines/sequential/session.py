"""The session of one stream of a sequential pipeline: a thread that answers its requests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from infeed.shared.errors import InfeedError
from infeed_server.engines.base import Answer, Request, Session, shutting_down
from infeed_server.engines.memory_budget import StreamQuota
from infeed_server.engines.sequential.shared_reader import IsWanted

_Pending = tuple[Request, "Future[Answer]"]


class SequentialSession(Session):
    """Answers requests in order, which is the order of the dataset.

    It waits while its quota is full of unsent answers, so a stalled stream holds a fixed amount
    and does not advance the dataset.
    """

    def __init__(
        self,
        answer: Callable[[Request, IsWanted], Answer],
        quota: StreamQuota,
        on_sent: Callable[[Request], None],
        on_closed: Callable[[SequentialSession], None],
        on_queue: Callable[[], None],
    ) -> None:
        """`answer` makes an answer while it is wanted. `on_sent` is called with each request whose
        answer is sent, `on_closed` when the session's thread ends, `on_queue` when the number of
        requests that wait has changed."""
        super().__init__(quota)
        self._answer = answer
        self._on_sent = on_sent
        self._on_closed = on_closed
        self._on_queue = on_queue
        self._unsent: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._pending: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._waits_for_quota = False
        self._closed = False
        self._changed = threading.Condition()

    def start(self, name: str) -> None:
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def queued(self) -> int:
        """The number of requests on which no work has started."""
        return self._pending.qsize() + self._waits_for_quota

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self._closed:
            future.set_exception(shutting_down())
        else:
            self._pending.put((request, future))
            self._on_queue()
        return future

    def on_sent(self) -> None:
        self._quota.release()
        self._on_sent(self._unsent.get_nowait())
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        self._quota.close()
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._pending.put(None)

    def _run(self) -> None:
        while (pending := self._pending.get()) is not None:
            self._wait_for_quota()
            self._on_queue()
            self._process(*pending)
            del pending  # or the last answer would be held while the next request is awaited
        self._on_closed(self)

    def _wait_for_quota(self) -> None:
        with self._changed:
            self._waits_for_quota = True
            while not (self._closed or self._quota.try_acquire()):
                self._changed.wait()
            self._waits_for_quota = False

    def _process(self, request: Request, future: Future[Answer]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            if self._closed:
                raise shutting_down()
            began_at = time.perf_counter()
            answer = self._answer(request, lambda: not self._closed)
            if request.span is not None:
                request.span.add("transform", time.perf_counter() - began_at)
            self._unsent.put(request)
            future.set_result(answer)
        except InfeedError as error:
            future.set_exception(error)
