"""Ready batches: the hand-over of batches to the training thread.

Ctrl-C and other signals raise exceptions in the main thread, after any call of it. Therefore the
training thread takes no lock here, and a batch stays in `items` until the last bytecode before it
is returned: `next()` looks at the first item as often as necessary, and then executes

    del items[number]
    return batch

Python runs signal handlers after calls and jumps back, so never between these two lines. A feed's
progress follows from what is left in `items`. Of several threads, the `del` succeeds for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infeed.prefetch.threads import Wakeup
from infeed.stats import Progress
from infeed.wire.received import ReceivedBatch

_MAX_WAIT_SECONDS = 1.0
"""Bound on one wait, in case another thread's interrupt lost this thread's wake-up."""


@dataclass(frozen=True)
class EndOfFeed:
    """The item behind the last batch."""

    position_count: int | None = None
    """The data's number of positions, if its length was unknown before."""


FeedItem = ReceivedBatch | BaseException | EndOfFeed
"""A batch or, after the last one, the feed's end or the error that ended it."""


@dataclass(frozen=True)
class ReadyItem:
    """A batch, or the last item, and the progress of the feed before and after it."""

    item: FeedItem
    before: Progress
    after: Progress


class ReadyBatches:
    """Items in order, put by one thread. The last one, the end or an error, is never removed."""

    def __init__(self, on_taken: Callable[[], None], max_items: int | None = None) -> None:
        """`on_taken` is called just before a batch is taken, and when there is none to take."""
        self.items: dict[int, ReadyItem] = {}
        """By number, from 0; batch n is the batch of step n."""
        self._on_taken = on_taken
        self._max_items = max_items
        self._put = Progress()
        """The progress after the item that was put last."""
        self._end_put = False
        self._first = 0
        """No item with a lower number is left."""
        self._announced = 0
        self._closed_at: Progress | None = None
        self._arrived, self._space = Wakeup(), Wakeup()

    def put(self, item: FeedItem) -> None:
        """Adds an item, waiting while there are `max_items`; discards it if closed."""
        before, limit = self._put, self._max_items
        while self._closed_at is None and limit and before.steps - self.taken >= limit:
            self._space.wait()
        if self._closed_at is not None:
            return
        after = before
        if isinstance(item, ReceivedBatch):
            after = before.plus(int(item.batch.mask.sum()), item.payload_bytes)
        self.items[before.steps] = ReadyItem(item, before, after)
        self._put, self._end_put = after, after is before
        self._arrived.set()

    def first(self, timeout: float) -> ReadyItem | None:
        """Waits for the first item and returns it; None after `timeout` seconds, or when closed."""
        if (item := self._peek()) is None and self._closed_at is None:
            self._on_taken()  # an interrupt may have come just before a `del`
            self._arrived.wait(min(timeout, _MAX_WAIT_SECONDS))
            item = self._peek()
        if len(self.items) > 1 or self._end_put or self._closed_at is not None:
            self._arrived.set()  # for another thread that waits
        return item

    def announce(self, number: int) -> None:
        """Frees the space of a batch that is about to be taken."""
        self._announced = number + 1
        self._space.set()
        self._on_taken()

    @property
    def taken(self) -> int:
        """Batches taken or about to be taken."""
        return max(self._announced, self.progress.steps)

    @property
    def progress(self) -> Progress:
        """Steps, samples and bytes of the batches taken."""
        if self._closed_at is not None:
            return self._closed_at
        put = self._put  # first: an item that is put meanwhile is not taken
        item = self._peek()
        return put if item is None else item.before

    def close(self) -> None:
        """Discards all items and wakes all waiting threads. Idempotent; never blocks."""
        if self._closed_at is None:
            self._closed_at = self.progress
        self.items.clear()
        self._arrived.set()
        self._space.set()

    def _peek(self) -> ReadyItem | None:
        put = self._put.steps  # first: an item that it counts and that is missing was taken
        number = self._first
        while number < put and number not in self.items:
            number += 1
        self._first = number
        return self.items.get(number)
