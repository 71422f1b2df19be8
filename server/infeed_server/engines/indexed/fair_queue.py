"""A fair queue, which takes the requests of many streams in turn."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from infeed.shared.errors import InfeedError
from infeed_server.engines.base import shutting_down
from infeed_server.engines.indexed.batch_task import BatchTask, complete
from infeed_server.engines.memory_budget import StreamQuota


class FairQueue:
    """Takes tasks of each stream, identified by its quota, in turn, while the quota has room. A
    batch counts from `take` until `release`, after it is sent. So a stalled stream fills its quota,
    and takes no turns from the others. Only a stream's own batches wake the consumer: a stream
    without room holds at least two batches, and is checked again when the first of them is sent."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: OrderedDict[StreamQuota, deque[BatchTask]] = OrderedDict()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    @property
    def is_empty(self) -> bool:
        """Whether no task waits. Reads without a lock, so it may be out of date."""
        return not self._waiting

    def put(self, task: BatchTask) -> None:
        """Adds a task, which fails if the queue is closed."""
        with self._changed:
            if not self.closed:
                self._waiting.setdefault(task.quota, deque()).append(task)
                self._changed.notify()
                return
        complete(task, shutting_down())

    def take(self, *, wait: bool) -> BatchTask | None:
        """Takes the next task. Returns None if there is none and not `wait`, or when closed."""
        with self._changed:
            while not self.closed:
                task = self._next()
                if task is not None or not wait:
                    return task
                self._changed.wait()
            return None

    def wake(self) -> None:
        """Checks again which streams have room."""
        with self._changed:
            self._changed.notify()

    def remove(self, quota: StreamQuota) -> None:
        """Closes a stream's quota and cancels its waiting tasks; taken tasks continue."""
        quota.close()
        with self._changed:
            self._changed.notify()
            tasks = self._waiting.pop(quota, ())
        for task in tasks:
            task.future.cancel()

    def close(self, error: InfeedError) -> None:
        """Closes the queue: `take` returns None from now on, and the waiting tasks fail."""
        with self._changed:
            self.closed = True
            tasks = [task for tasks in self._waiting.values() for task in tasks]
            self._waiting.clear()
            self._changed.notify_all()
        for task in tasks:
            complete(task, error)

    def _next(self) -> BatchTask | None:
        for quota, tasks in self._waiting.items():
            if quota.try_acquire():
                task = tasks.popleft()
                # The stream goes to the end of the queue.
                del self._waiting[quota]
                if tasks:
                    self._waiting[quota] = tasks
                return task
        return None
