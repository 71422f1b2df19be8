"""A fair queue: takes the requests of many streams in turn."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.memory_budget import StreamQuota


class FairQueue:
    """Takes tasks of each stream, identified by its quota, in turn, while the quota has room.

    A batch counts from `take` until `release`, after it is sent. So a stalled stream holds its
    quota, and takes no turns from the others.

    Only events of a stream's own batches wake the consumer: a stream without room holds at least
    two batches, and is checked again when the first of them is sent.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[StreamQuota, deque[BatchTask]] = OrderedDict()
        self._requeued: deque[BatchTask] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return len(self._requeued) + sum(map(len, self._waiting.values()))

    def put(self, task: BatchTask) -> bool:
        """Adds a task. Returns False when the queue is closed."""
        with self._changed:
            if self._closed:
                return False
            self._waiting.setdefault(task.quota, deque()).append(task)
            self._changed.notify()
            return True

    def requeue(self, task: BatchTask) -> bool:
        """Adds a task that was taken, before all others; it still counts in its quota."""
        with self._changed:
            if self._closed:
                return False
            self._requeued.append(task)
            self._changed.notify()
            return True

    def take(self, *, wait: bool) -> BatchTask | None:
        """Takes the next task. Returns None if there is none and not `wait`, or when closed."""
        with self._changed:
            while not self._closed:
                task = self._next()
                if task is not None or not wait:
                    return task
                self._changed.wait()
            return None

    def release(self, quota: StreamQuota) -> None:
        """Releases one taken batch of a stream."""
        quota.release()
        with self._changed:
            self._changed.notify()

    def remove(self, quota: StreamQuota) -> list[BatchTask]:
        """Closes a stream's quota and returns its waiting tasks; taken tasks continue."""
        quota.close()
        with self._changed:
            self._changed.notify()
            return list(self._waiting.pop(quota, ()))

    def close(self) -> list[BatchTask]:
        """Closes the queue: `take` returns None from now on. Returns the waiting tasks."""
        with self._changed:
            self._closed = True
            remaining = [*self._requeued]
            remaining += [task for tasks in self._waiting.values() for task in tasks]
            self._requeued.clear()
            self._waiting.clear()
            self._changed.notify_all()
            return remaining

    @property
    def is_empty(self) -> bool:
        """Whether no task waits. Without a lock: it may just change."""
        return not (self._waiting or self._requeued)

    @property
    def closed(self) -> bool:
        return self._closed

    def _next(self) -> BatchTask | None:
        if self._requeued:
            return self._requeued.popleft()
        for quota, tasks in self._waiting.items():
            if quota.try_acquire():
                task = tasks.popleft()
                # The stream goes to the back of the line.
                del self._waiting[quota]
                if tasks:
                    self._waiting[quota] = tasks
                return task
        return None
