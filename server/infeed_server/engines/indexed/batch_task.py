"""Batch tasks: a request in progress, with the sample of each slot and the future of its result."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from infeed.shared.errors import InfeedError
from infeed.shared.spec import Array
from infeed_server.engines.base import Answer, HostBatch, Request
from infeed_server.engines.memory_budget import StreamQuota
from infeed_server.order import SampleOrder


@dataclass
class BatchTask:
    """A request in progress.

    Every slot has a sample, so that the graph has no special case; where `mask` is False, the
    result is discarded and the slot left empty. The samples are assigned when the work begins, so
    that a queued request takes no memory for them.
    """

    request: Request
    order: SampleOrder
    quota: StreamQuota
    index: Array = field(init=False)
    key: Array = field(init=False)
    mask: Array = field(init=False)
    epoch: int = field(init=False)
    assigned: bool = False
    future: Future[Answer] = field(default_factory=Future)
    substitutions: int = 0
    entered_at: float = 0.0
    """The `time.perf_counter` at which the batch entered the graph."""
    retries: int = 0
    """Retries after failures without a bad sample."""

    def assign_samples(self) -> None:
        """Assigns a sample to each slot; slots behind the request's `count` repeat its last one."""
        request = self.request
        slots = self.order.slots(request.start, max(request.count, 1))
        rows = np.minimum(np.arange(request.slots), len(slots.index) - 1)
        self.index, self.key = slots.index[rows], slots.key[rows]
        self.mask = np.arange(request.slots) < request.count
        self.epoch = int(slots.epoch[0])
        self.assigned = True

    @property
    def sample_ids(self) -> Array:
        """int64[slots]: the delivered samples, -1 for an empty slot."""
        return np.where(self.mask, self.index, -1)

    def to_batch(self, arrays: dict[str, Array]) -> HostBatch:
        """Returns the batch with zeros, or empty strings, in the masked slots."""
        if not self.mask.all():
            arrays = {name: _clear(array, ~self.mask) for name, array in arrays.items()}
        return HostBatch(self.request.start, self.epoch, arrays, self.sample_ids, self.mask)

    def substitute(self, slot: int, *, masked: bool) -> None:
        """Puts another sample, drawn from the bad one's key, into a slot."""
        self.substitutions += 1
        drawn = self.order.substitute(int(self.index[slot]), self.key[slot])
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
    result: Array = array.copy()
    result[masked] = b"" if array.dtype == object else 0
    return result
