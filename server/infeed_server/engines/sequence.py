"""One stream of a sequential pipeline: its requests one after the other, on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from infeed.errors import InfeedError, ServerUnavailableError
from infeed_server.engines.base import STREAM_BYTES, Answer, Request
from infeed_server.engines.reader import Wanted

_Asked = tuple[Request, "Future[Answer]"]


class SequentialSession:
    """Answers requests in their order, which is that of the dataset.

    No more answers are made than may wait to be sent, so a stream that nobody reads holds a fixed
    amount and does not read the dataset on.
    """

    def __init__(
        self,
        answer: Callable[[Request, Wanted], Answer],
        batch_bytes: int,
        sent: Callable[[Request], None],
        left: Callable[[SequentialSession], None],
    ) -> None:
        """`answer` makes an answer while it is wanted; `sent` is told what is on its way to the
        trainer, and `left` when the session ends."""
        self._answer = answer
        self._sent = sent
        self._left = left
        self._made: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._limit = max(2, min(16, STREAM_BYTES // max(batch_bytes, 1)))
        self._room = threading.Semaphore(self._limit)
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._unsent = 0

    def start(self, name: str) -> None:
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def queued(self) -> int:
        """Requests that nobody works on yet."""
        return self._asked.qsize()

    @property
    def unsent(self) -> int:
        """Answers that are being made, or are made and not sent yet."""
        return self._unsent

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self._over.is_set():
            future.set_exception(shutting_down())
        else:
            self._asked.put((request, future))
        return future

    def sent(self) -> None:
        self._count(-1)
        self._sent(self._made.get_nowait())
        self._room.release()

    def close(self) -> None:
        self._over.set()
        self._room.release()
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            if not self._over.is_set():
                self._room.acquire()
            self._count(1)
            self._settle(*asked)
        self._left(self)

    def _settle(self, request: Request, future: Future[Answer]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            if self._over.is_set():
                raise shutting_down()
            answer = self._answer(request, lambda: not self._over.is_set())
            self._made.put(request)
            future.set_result(answer)
        except InfeedError as error:
            future.set_exception(error)

    def _count(self, step: int) -> None:
        with self._lock:
            self._unsent += step


def shutting_down() -> ServerUnavailableError:
    return ServerUnavailableError("the server is shutting down")
