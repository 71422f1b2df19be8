"""Shared batches: each is made once for all feeds that request it while it is made or kept.

A batch is kept for feeds that have not reached its position. If a feed falls too far behind, its
batch is made again, with the same bits.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from infeed.shared.errors import InfeedError
from infeed_server.engines.base import HostBatch, RunKey, SharedPayloads, Trainer
from infeed_server.engines.indexed.batch_task import BatchTask, Reader, complete
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.sources.base import array_bytes

Origin = Literal["computed", "shared", "recomputed"]
"""How a feed got samples: made for it, made for another feed, or made again because the feed
requested them too late."""

_OBJECT_BYTES, _FIELD_BYTES = 2 << 10, 1 << 10
"""Memory of a kept batch, and of each of its fields, in Python's objects."""

_Key = tuple[RunKey, int, int, int]
"""The run, the first position, the number of positions and of slots."""


@dataclass(eq=False)
class _Shared:
    """A batch that is being made, and kept afterwards."""

    maker: Reader
    waiting: list[BatchTask] = field(default_factory=list)
    batch: HostBatch | None = None
    bytes: int = 0
    """Memory taken for it: arrays, sample ids, mask, objects and payloads."""


class SharedBatches:
    """The shared batches of a pipeline. Thread-safe."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.samples: Counter[Origin] = Counter()
        self._budget = budget
        self._readers: Counter[Reader] = Counter()
        """The feeds, with the number of their streams: a batch is sent on one of these."""
        self._batches: dict[_Key, _Shared] = {}
        """The oldest first."""
        self._lock = threading.Lock()

    def open(self, trainer: Trainer, slots: int) -> Reader:
        """Returns the feed of a stream. From its first request on, batches are also kept for it."""
        with self._lock:
            same = (reader for reader in self._readers if reader.trainer == trainer)
            reader = (next(same, None) if trainer.feed_id else None) or Reader(trainer, slots)
            self._readers[reader] += 1
            return reader

    def close(self, reader: Reader) -> None:
        """Ends a stream; keeps no more batches for a feed without one."""
        with self._lock:
            self._readers[reader] -= 1
            self._readers = +self._readers
            self._drop([key for key, kept in self._batches.items() if not self._wanted(key, kept)])

    @property
    def kept_bytes(self) -> int:
        with self._lock:
            return sum(kept.bytes for kept in self._batches.values())

    def announce(self, task: BatchTask) -> None:
        """Keeps batches for a feed from the position of a task on, if it begins another run."""
        with self._lock:
            if task.reader.run != task.request.run:
                task.reader.run, task.reader.position = task.request.run, task.request.start

    def join(self, task: BatchTask) -> bool:
        """Completes the task with its batch, at once or when it is made. Returns False if it is
        neither kept nor being made: the caller then makes it, and calls `settle`."""
        key, reader = _key(task), task.reader
        with self._lock:
            found = self._batches.get(key)
            reader.run, reader.position = key[0], key[1] + key[2]
            if found is None:
                again = any(other.position > key[1] for other in self._others(key, reader))
                self.samples["recomputed" if again else "computed"] += key[2]
                self._batches[key] = _Shared(reader, [task])
                return False
            self.samples["shared"] += key[2]
            if found.batch is None:
                found.waiting.append(task)
                return True
            batch = found.batch
            if not self._wanted(key, found):
                self._drop([key])
        complete(task, batch)
        return True

    def settle(self, task: BatchTask, result: HostBatch | InfeedError) -> None:
        """Completes all tasks that wait for the batch of a task. An error is not kept."""
        key = _key(task)
        with self._lock:
            made = self._batches.pop(key)
            waiting, made.waiting = made.waiting, []
            if isinstance(result, HostBatch):
                arrays = (*result.arrays.values(), result.sample_ids, result.mask)
                objects = _OBJECT_BYTES + _FIELD_BYTES * len(result.arrays)
                made.bytes = objects + sum(map(array_bytes, arrays))
                is_kept = self._wanted(key, made) and self._make_room(made.bytes)
                if is_kept or len(waiting) > 1:
                    result = replace(
                        result, payloads=SharedPayloads(partial(self._count_payload, key, made))
                    )
                if is_kept:
                    made.batch = result
                    self._batches[key] = made
        for one in waiting:
            complete(one, result)

    def _count_payload(self, key: _Key, made: _Shared, size: int) -> None:
        """Takes memory for a payload of a kept batch, or drops the batch."""
        with self._lock:
            if self._batches.get(key) is made:
                if self._budget.keep(size):
                    made.bytes += size
                else:
                    self._drop([key])

    def _others(self, key: _Key, maker: Reader) -> list[Reader]:
        """Returns the other feeds that will request a batch if they continue."""
        others = (reader for reader in self._readers if reader is not maker)
        return [other for other in others if other.run == key[0] and other.shares(maker)]

    def _wanted(self, key: _Key, kept: _Shared) -> bool:
        """Returns whether a feed will request a batch while it can be kept."""
        per_position = max(1, kept.bytes // max(1, key[2]))
        reach = self._budget.kept_limit // per_position
        others = self._others(key, kept.maker)
        return any(0 <= key[1] - other.position <= reach - key[2] for other in others)

    def _make_room(self, size: int) -> bool:
        """Takes memory for a batch: from batches that no feed will request, then from the
        oldest."""
        if self._budget.keep(size):
            return True
        settled = [key for key, kept in self._batches.items() if kept.batch is not None]
        for key in sorted(settled, key=lambda key: self._wanted(key, self._batches[key])):
            self._drop([key])
            if self._budget.keep(size):
                return True
        return False

    def _drop(self, keys: list[_Key]) -> None:
        for key in keys:
            if self._batches[key].batch is not None:
                dropped = self._batches.pop(key)
                self._budget.drop(dropped.bytes)
                # Its payloads refer to it: only the garbage collector would free the arrays.
                dropped.batch = None


def _key(task: BatchTask) -> _Key:
    request = task.request
    return request.run, request.start, request.count, request.slots
