"""The queue of a batch pipeline: it gives out the batches that are not made yet.

A task whose batch is kept, or in the making, is completed with that one. Another task becomes work,
which belongs to the pipeline rather than to a stream, since the stream may leave.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from infeed.shared.errors import InfeedError
from infeed_server.engines.base import Answer, EndOfData, shutting_down
from infeed_server.engines.indexed.fair_queue import BatchTask, FairQueue, complete
from infeed_server.engines.indexed.shared_batches import SharedBatches
from infeed_server.engines.memory_budget import StreamQuota


class BatchQueue:
    """Takes the requests of streams in turn, and gives out work. Thread-safe; one thread takes."""

    def __init__(self, shared: SharedBatches) -> None:
        self._shared = shared
        self._tasks = FairQueue()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def is_empty(self) -> bool:
        """Whether no task waits. Without a lock: it may just change."""
        return self._tasks.is_empty

    @property
    def closed(self) -> bool:
        return self._tasks.closed

    def put(self, task: BatchTask) -> None:
        """Adds a task, which fails if the queue is closed."""
        if not self._tasks.put(task):
            complete(task, shutting_down())
        self.serve_shared(task.quota)

    def on_sent(self, quota: StreamQuota) -> None:
        """Uses the room that a stream has after a batch of it is sent."""
        self._tasks.wake()
        self.serve_shared(quota)

    def serve_shared(self, quota: StreamQuota) -> None:
        """Completes a stream's next tasks whose batches are kept, or makes them wait for those in
        the making. They need no work, so they need no turn either."""
        while task := self._tasks.take_of(quota, self._shared.has):
            if not self._shared.join(task, make=False) and not self._tasks.requeue(task):
                complete(task, shutting_down())

    def take(self, *, wait: bool) -> BatchTask | None:
        """Returns the next work. Returns None if there is none and not `wait`, or when closed."""
        while task := self._tasks.take(wait=wait):
            if not self._shared.join(task, make=True):
                work = replace(task, future=Future())
                work.future.add_done_callback(partial(self._settle, task))
                return work
        return None

    def remove(self, quota: StreamQuota) -> None:
        """Removes a stream, with its waiting tasks; taken tasks continue."""
        for task in self._tasks.remove(quota):
            task.future.cancel()

    def close(self) -> list[BatchTask]:
        """Closes the queue: `take` returns None from now on. Returns the waiting tasks."""
        return self._tasks.close()

    def _settle(self, task: BatchTask, made: Future[Answer]) -> None:
        error = made.exception()
        assert error is None or isinstance(error, InfeedError)
        result = error or made.result()
        assert not isinstance(result, EndOfData)
        self._shared.settle(task, result)
