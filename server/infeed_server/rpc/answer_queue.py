"""Queue of a stream's answers, in the order of its requests."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import TypeAlias

from infeed.shared.errors import InvalidRequestError
from infeed_server.rpc.batch_encoder import EncodedAnswer

MAX_PENDING_REQUESTS = 1024
"""Requests of one stream: with fewer, a trainer could ask less far ahead; more are an error."""

_Answer: TypeAlias = "Future[EncodedAnswer] | Exception | None"
"""The answer to a request, or the error in it; None at the end of the stream."""


class AnswerQueue:
    """Answers that are made or under way. One thread adds, one takes, any thread may wake it."""

    def __init__(self) -> None:
        self.ended = False
        """Whether `take` returns nothing more."""
        self._answers: deque[_Answer] = deque()
        self._changed = threading.Event()

    def require_room(self) -> None:
        """Raises `InvalidRequestError` if too many requests are unanswered."""
        if len(self._answers) >= MAX_PENDING_REQUESTS:
            raise InvalidRequestError(f"more than {MAX_PENDING_REQUESTS} requests are unanswered")

    def add(self, answer: _Answer) -> None:
        self._answers.append(answer)
        if isinstance(answer, Future):
            changed = self._changed  # the queue refers to the future: a cycle would keep its batch
            answer.add_done_callback(lambda _: changed.set())
        else:
            self._changed.set()

    def take(self) -> EncodedAnswer | None:
        """Returns the answer to the oldest request if it is ready. Raises the error in its place.

        A cancelled one is the end: the session was closed, by the client or by the server's end.
        """
        if not self._answers:
            return None
        oldest = self._answers[0]
        if isinstance(oldest, Future) and not oldest.done():
            return None
        self._answers.popleft()
        if isinstance(oldest, Exception):
            raise oldest
        try:
            answer = None if oldest is None else oldest.result()
        except CancelledError:
            answer = None
        self.ended = self.ended or answer is None
        return answer

    def wait(self, timeout: float) -> bool:
        """Waits until `take` may return something, or `wake`; returns False if it times out."""
        is_woken = self._changed.wait(timeout)
        self._changed.clear()
        return is_woken

    def wake(self) -> None:
        """Ends the current or next `wait`."""
        self._changed.set()

    def end(self) -> None:
        """Ends the answers, also for a thread in `wait`."""
        self.ended = True
        self._changed.set()
