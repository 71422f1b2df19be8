"""One request on its way through the engine, and the rows that fill its slots."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from infeed.errors import InfeedError
from infeed.spec import Array
from infeed_server.engines.base import Answer, HostBatch, Request
from infeed_server.engines.budget import Account
from infeed_server.order import Order


@dataclass
class Work:
    """What each slot is made of, and where the result goes.

    Every slot is filled with some sample, so that the graph has no special case: `index` and
    `key` say which. Where `mask` is False the result is thrown away and the slot left zero.
    `plan` makes these rows, when the work begins: a request that waits takes no room for them.
    """

    request: Request
    order: Order
    owner: Account
    index: Array = field(init=False)
    key: Array = field(init=False)
    mask: Array = field(init=False)
    epoch: int = field(init=False)
    planned: bool = False
    future: Future[Answer] = field(default_factory=Future)
    replacements: int = 0
    """Samples that another one stands in for."""
    entered_at: float = 0.0
    """When the batch entered the graph, by `time.perf_counter`."""
    retries: int = 0
    """Times that the batch was made again for no reason that was found."""

    def plan(self) -> None:
        """Makes the rows of the request; slots behind `count` repeat one of its samples."""
        request = self.request
        slots = self.order.slots(request.start, max(request.count, 1))
        rows = np.minimum(np.arange(request.slots), len(slots.index) - 1)
        self.index, self.key = slots.index[rows], slots.key[rows]
        self.mask = np.arange(request.slots) < request.count
        self.epoch = int(slots.epoch[0])
        self.planned = True

    @property
    def sample_ids(self) -> Array:
        """int64[slots]: the samples that are delivered, -1 for an empty slot."""
        return np.where(self.mask, self.index, -1)

    def replace(self, slot: int, *, masked: bool) -> None:
        """Puts another sample, drawn from the bad one's key, into a slot."""
        self.replacements += 1
        drawn = self.order.substitute(int(self.index[slot]), self.key[slot])
        self.index[slot], self.key[slot] = drawn.index[0], drawn.key[0]
        if masked:
            self.mask[slot] = False


def settle(work: Work, result: HostBatch | InfeedError) -> None:
    """Gives the work's future its result; the stream may be gone, and the future cancelled."""
    if not work.future.set_running_or_notify_cancel():
        return
    if isinstance(result, InfeedError):
        work.future.set_exception(result)
    else:
        work.future.set_result(result)
