"""Requests of many streams, taken in turn."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from infeed_server.engines.budget import Account
from infeed_server.engines.work import Work


class FairQueue:
    """Gives each owner, a stream's account, its turn, for as long as the account has room.

    A batch counts from the moment it is taken until it is `released`, when it has been sent: so
    a stream that nobody reads holds what its account may, and no turn of the others.

    Only what happens to an owner's own batches wakes the taker. What other queues free may give it
    room too; but an owner without room holds two batches at least, and is looked at again when the
    first of them is sent.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[Account, deque[Work]] = OrderedDict()
        self._again: deque[Work] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return len(self._again) + sum(map(len, self._waiting.values()))

    def put(self, work: Work) -> bool:
        """Adds a request; False when the queue is closed."""
        with self._changed:
            if self._closed:
                return False
            self._waiting.setdefault(work.owner, deque()).append(work)
            self._changed.notify()
            return True

    def put_back(self, work: Work) -> bool:
        """Adds taken work again, before all others; it still counts as taken."""
        with self._changed:
            if self._closed:
                return False
            self._again.append(work)
            self._changed.notify()
            return True

    def take(self, *, wait: bool) -> Work | None:
        """The next request. None: there is none now (`wait` False), or the queue is closed."""
        with self._changed:
            while not self._closed:
                work = self._next()
                if work is not None or not wait:
                    return work
                self._changed.wait()
            return None

    def release(self, owner: Account) -> None:
        """Says that one taken batch of the owner is gone."""
        owner.give_back()
        with self._changed:
            self._changed.notify()

    def drop(self, owner: Account) -> list[Work]:
        """Closes an owner and takes out what it waits for; what is taken already goes its way."""
        owner.close()
        with self._changed:
            self._changed.notify()
            return list(self._waiting.pop(owner, ()))

    def close(self) -> list[Work]:
        """No more work: takers return None. Returns what was waiting."""
        with self._changed:
            self._closed = True
            left = [*self._again, *(work for queue in self._waiting.values() for work in queue)]
            self._again.clear()
            self._waiting.clear()
            self._changed.notify_all()
            return left

    @property
    def closed(self) -> bool:
        return self._closed

    def _next(self) -> Work | None:
        if self._again:
            return self._again.popleft()
        for owner, queue in self._waiting.items():
            if owner.take():
                work = queue.popleft()
                del self._waiting[owner]
                if queue:
                    self._waiting[owner] = queue
                return work
        return None
