"""The queue of a pipeline's tasks, which gives out tiles that are not made yet.

A task whose batch is kept, or in the making, is completed with it. Of another one, the tiles to
make are taken: the batch itself, or the parts of it that no batch of another size has had made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from infeed.shared.errors import InfeedError
from infeed_server.engines.base import Answer, EndOfData, shutting_down
from infeed_server.engines.indexed.fair_queue import BatchTask, FairQueue, complete
from infeed_server.engines.indexed.shared_batches import SharedBatches
from infeed_server.engines.indexed.tiles import TileJoiner, split
from infeed_server.engines.memory_budget import StreamQuota


class TileQueue:
    """Takes tiles of a size. Thread-safe; one thread takes."""

    def __init__(self, slots: int, shared: SharedBatches) -> None:
        self._slots = slots
        self._shared = shared
        self._tasks = FairQueue()
        self.withdraw = self._tasks.withdraw
        self._tiles: deque[BatchTask] = deque()
        """Tiles of the last task; they are taken next."""

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

    def retry(self, task: BatchTask) -> None:
        """Adds a tile that was taken, or a task that was, before all others."""
        if not self._tasks.requeue(task):
            complete(task, shutting_down())

    def on_sent(self, quota: StreamQuota) -> None:
        """Uses the room that a stream has after a batch of it is sent."""
        self._tasks.wake()
        self.serve_shared(quota)

    def serve_shared(self, quota: StreamQuota) -> None:
        """Completes a stream's next tasks whose batches are kept, or makes them wait for those in
        the making. They need no work, so they need no turn either."""
        while task := self._tasks.take_of(quota, self._shared.has):
            if not self._shared.join(task, make=False, is_tile=self._is_tile(task)):
                self.retry(task)

    def take(self, *, wait: bool) -> BatchTask | None:
        """Returns the next tile to make. Returns None if there is none and not `wait`, or when
        closed."""
        while not self._tiles:
            task = self._tasks.take(wait=wait)
            if task is None or task.assigned:  # which is a tile that is tried again
                return task
            if not self._shared.join(task, make=True, is_tile=self._is_tile(task)):
                self._tiles.extend(self._make(task))
        return self._tiles.popleft()

    def remove(self, quota: StreamQuota) -> None:
        """Removes a stream, with its waiting tasks; taken tasks continue."""
        for task in self._tasks.remove(quota):
            task.future.cancel()

    def close(self) -> list[BatchTask]:
        """Closes the queue: `take` returns None from now on. Returns the waiting tasks."""
        return self._tasks.close()

    def drain(self) -> list[BatchTask]:
        """Closes the queue as the thread that takes. Returns the waiting tasks and tiles."""
        tiles = [*self._tiles]
        self._tiles.clear()
        return [*tiles, *self.close()]

    def _make(self, task: BatchTask) -> Iterator[BatchTask]:
        """Yields tiles to make: of a batch, those that are not shared. They belong to the pipeline
        rather than to a stream, which may leave."""
        if self._is_tile(task):
            tile = replace(task, future=Future())
            tile.future.add_done_callback(partial(self._settle, task))
            yield tile
            return
        requests = list(split(task.request, self._slots))
        joiner = TileJoiner(task.request, len(requests), partial(self._shared.settle, task))
        for number, request in enumerate(requests):
            tile = replace(task, request=request, future=Future())
            joiner.add(number, tile.future)
            if not self._shared.join(tile, make=True, is_tile=True):
                yield from self._make(tile)

    def _is_tile(self, task: BatchTask) -> bool:
        return task.request.slots == self._slots

    def _settle(self, task: BatchTask, made: Future[Answer]) -> None:
        error = made.exception()
        assert error is None or isinstance(error, InfeedError)
        result = error or made.result()
        assert not isinstance(result, EndOfData)
        self._shared.settle(task, result)
