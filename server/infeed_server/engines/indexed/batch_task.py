"""Batch tasks: requests in progress."""

from __future__ import annotations

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
    """A feed with one stream per connection: its place in its job, and the position up to which its
    requests have started."""

    trainer: Trainer = field(default_factory=Trainer)
    slots: int = 0
    run: RunKey | None = None
    position: int = 0

    def shares(self, other: Reader) -> bool:
        """Returns whether it requests the other feed's batches, if both are in one run."""
        ours, theirs = self.trainer, other.trainer
        is_same_rank = ours.world_size != theirs.world_size or ours.rank == theirs.rank
        return is_same_rank and self.slots == other.slots


@dataclass(eq=False)
class BatchTask:
    """A request in progress. Every slot has a sample, so the graph needs no special case; if `mask`
    is False, the result is discarded and the slot stays empty. Samples are assigned when the work
    begins, so a queued request takes no memory for them."""

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
    is_assigned: bool = False
    """Whether the slots have samples; an order that fails gives them none."""
    arrays: dict[str, Array] = field(default_factory=dict)
    """The results of the other slots, if any. The task owns the writable ones."""
    future: Future[Answer] = field(default_factory=Future)
    uncounted: Array = field(init=False)
    """bool[slots]: slots with a sample of the request whose picture has not been counted."""
    replaced: set[int] = field(default_factory=set)
    """Slots whose own samples are bad."""
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
        self.is_assigned = True

    @property
    def sample_ids(self) -> Array:
        """int64[slots]: the delivered samples, -1 for an empty slot."""
        return np.where(self.mask, self.index, -1)

    def put(self, slots: Array, arrays: dict[str, Array], done: Array | None = None) -> None:
        """Keeps the results of some of the slots that are left: all rows of the arrays, or those
        that are `done`. Arrays of all slots are kept without a copy; with `done`, later results are
        written into them."""
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
