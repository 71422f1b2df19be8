"""One stream of a sequential pipeline: its requests one after the other, on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from infeed.errors import InfeedError, ServerUnavailableError
from infeed_server.engines.base import Answer, Request
from infeed_server.engines.budget import Account
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
        account: Account,
        sent: Callable[[Request], None],
        left: Callable[[SequentialSession], None],
    ) -> None:
        """`answer` makes an answer while it is wanted; `sent` is told what is on its way to the
        trainer, and `left` when the session ends."""
        self._answer = answer
        self._account = account
        self._sent = sent
        self._left = left
        self._made: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._over = False
        self._changed = threading.Condition()

    def start(self, name: str) -> None:
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def queued(self) -> int:
        """Requests that nobody works on yet."""
        return self._asked.qsize()

    def weigh(self, size: int) -> None:
        self._account.weigh(size)

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self._over:
            future.set_exception(shutting_down())
        else:
            self._asked.put((request, future))
        return future

    def sent(self) -> None:
        self._account.give_back()
        self._sent(self._made.get_nowait())
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        self._account.close()
        with self._changed:
            self._over = True
            self._changed.notify()
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            self._wait_for_room()
            self._settle(*asked)
            del asked  # or the last answer would be held while the next request is awaited
        self._left(self)

    def _wait_for_room(self) -> None:
        with self._changed:
            while not (self._over or self._account.take()):
                self._changed.wait()

    def _settle(self, request: Request, future: Future[Answer]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            if self._over:
                raise shutting_down()
            answer = self._answer(request, lambda: not self._over)
            self._made.put(request)
            future.set_result(answer)
        except InfeedError as error:
            future.set_exception(error)


def shutting_down() -> ServerUnavailableError:
    return ServerUnavailableError("the server is shutting down")
