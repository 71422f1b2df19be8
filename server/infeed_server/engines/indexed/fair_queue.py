"""Requests in progress, and a fair queue that takes the requests of many streams in turn."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from infeed.shared.errors import InfeedError
from infeed.shared.spec import Array
from infeed_server.engines.base import Answer, HostBatch, Request, RunKey, Trainer
from infeed_server.engines.memory_budget import StreamQuota
from infeed_server.order import RunOrder
from infeed_server.pipeline.rows import read_only


@dataclass(eq=False)
class Reader:
    """A feed, with one stream for each connection: its place in its job, and the position up to
    which its requests were started."""

    trainer: Trainer = field(default_factory=Trainer)
    slots: int = 0
    run: RunKey | None = None
    position: int = 0

    def shares(self, other: Reader) -> bool:
        """Returns whether it asks for the other feed's batches, if both are in one run."""
        ours, theirs = self.trainer, other.trainer
        is_same_rank = ours.world_size != theirs.world_size or ours.rank == theirs.rank
        return is_same_rank and self.slots == other.slots


@dataclass(eq=False)
class BatchTask:
    """A request in progress. Every slot has a sample, so that the graph has no special case; where
    `mask` is False, the result is discarded and the slot left empty. The samples are assigned when
    the work begins, so that a queued request takes no memory for them."""

    request: Request
    order: RunOrder
    quota: StreamQuota
    reader: Reader = field(default_factory=Reader)
    index: Array = field(init=False)
    key: Array = field(init=False)
    mask: Array = field(init=False)
    epoch: int = field(init=False)
    left: Array = field(init=False)
    """int64[n]: the slots whose samples have no result yet, in order."""
    arrays: dict[str, Array] = field(default_factory=dict)
    """The results of the other slots, if there is any. Those that can be written are its own."""
    future: Future[Answer] = field(default_factory=Future)
    uncounted: Array = field(init=False)
    """bool[slots]: those with a sample of the request whose picture is not counted yet."""
    replaced: set[int] = field(default_factory=set)
    """The slots whose own samples are bad."""
    substitutions: int = 0
    entered_at: float = 0.0
    """The `time.perf_counter` at which the batch entered the graph."""

    def assign_samples(self) -> None:
        """Assigns a sample to each slot; slots behind the request's `count` repeat its last one."""
        request = self.request
        slots = self.order.slots(request.start, max(request.count, 1))
        rows = np.minimum(np.arange(request.slots), len(slots.index) - 1)
        self.index, self.key = slots.index[rows], slots.key[rows]
        self.mask = np.arange(request.slots) < request.count
        self.epoch = int(slots.epoch[0])
        self.uncounted = self.mask.copy()
        self.left = np.arange(request.slots)

    @property
    def sample_ids(self) -> Array:
        """int64[slots]: the delivered samples, -1 for an empty slot."""
        return np.where(self.mask, self.index, -1)

    def put(self, slots: Array, arrays: dict[str, Array], done: Array | None = None) -> None:
        """Keeps the results of some of the slots that are left: all rows of the arrays, or those
        that are `done`. Arrays of all slots are kept without a copy, and in the second case the
        others' results are written there."""
        if len(slots) == self.request.slots:
            self.arrays = read_only(arrays) if done is None else arrays
            self.left = slots[:0] if done is None else slots[~done]
            return
        done = np.ones(len(slots), bool) if done is None else done
        for name, array in arrays.items():
            if name not in self.arrays:
                self.arrays[name] = np.empty((self.request.slots, *array.shape[1:]), array.dtype)
            self.arrays[name][slots[done]] = array[done]
        self.left = np.setdiff1d(self.left, slots[done])

    def to_batch(self) -> HostBatch:
        """Returns the batch with zeros, or empty strings, in the masked slots."""
        arrays = self.arrays
        if not self.mask.all():
            arrays = {name: _clear(array, ~self.mask) for name, array in arrays.items()}
        return HostBatch(self.request.start, self.epoch, arrays, self.sample_ids, self.mask)

    def substitute(self, slot: int, *, masked: bool) -> None:
        """Puts another sample, drawn from the bad one's key, into a slot."""
        self.substitutions += 1
        self.replaced.add(slot)
        order = self.order.at(self.request.start + slot).order
        drawn = order.substitute(int(self.index[slot]), self.key[slot])
        self.index[slot], self.key[slot] = drawn.index[0], drawn.key[0]
        if masked:
            self.mask[slot] = False


def complete(task: BatchTask, result: HostBatch | InfeedError) -> None:
    """Sets the result of a task, unless its stream is closed and the future cancelled."""
    if not task.future.set_running_or_notify_cancel():
        return
    if isinstance(result, InfeedError):
        task.future.set_exception(result)
    else:
        task.future.set_result(result)


def _clear(array: Array, masked: Array) -> Array:
    result = array if array.flags.writeable else array.copy()
    result[masked] = b"" if array.dtype == object else 0
    return result


class FairQueue:
    """Takes tasks of each stream, identified by its quota, in turn, while the quota has room. A
    batch counts from `take` until `release`, after it is sent. So a stalled stream holds its quota,
    and takes no turns from the others. Only events of a stream's own batches wake the consumer: a
    stream without room holds at least two batches, and is checked again when the first of them is
    sent."""

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

    def take_of(
        self, quota: StreamQuota, is_ready: Callable[[BatchTask], bool]
    ) -> BatchTask | None:
        """Takes a stream's next task, out of turn, if it needs no work and the quota has room."""
        with self._changed:
            tasks = self._waiting.get(quota)
            if not tasks or not is_ready(tasks[0]) or not quota.try_acquire():
                return None
            task = tasks.popleft()
            if not tasks:
                del self._waiting[quota]
            return task

    def wake(self) -> None:
        """Checks again which streams have room."""
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
