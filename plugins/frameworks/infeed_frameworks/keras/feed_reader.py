"""Feed reader: the batches that Keras has taken from a feed, and those that it has trained on.

TensorFlow and Keras take batches in advance and discard some: they use some to build the model,
then restart. Once training is tracked, the reader keeps a batch until its step is complete, and
the first iteration of a `fit` begins with the first kept batch.
"""

from __future__ import annotations

import math
import threading
from weakref import WeakKeyDictionary

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.errors import FeedClosedError, InvalidRequestError


class FeedReader:
    """Reads one feed for all of its datasets and generators. Batches have the feed's numbers."""

    def __init__(self) -> None:
        self.batches_per_step = 1
        """Batches of a step; several if each replica of a strategy takes one."""
        self.completed: int | None = None
        """Batches trained on; None if training is not tracked."""
        self.begun = 0
        """The first batch of the current iteration."""
        self.is_generator = False
        """Whether the current iteration is a Python generator's, and not a dataset's."""
        self._iteration = self._next = 0
        """The current iteration, and the batch that it gets next."""
        self._end = math.inf
        """The batch before which the current iteration ends."""
        self._rewinds = False
        """Whether the next iteration is the first of a `fit`."""
        self._kept: dict[int, Batch] = {}
        self._lock = threading.Lock()
        """Held while a batch is taken: an abandoned iteration may still wait for its last."""

    def track(self, feed: Feed) -> None:
        """Begins to track the training on batches that were not delivered yet."""
        if self.completed is None:
            self._next = self.completed = feed.delivered

    def begin_training(self) -> None:
        """Begins a `fit`: its first iteration begins with the batches that are kept."""
        self._rewinds = True

    def begin(self, feed: Feed, steps: int | None = None, *, is_generator: bool = False) -> int:
        """Begins an iteration, which ends the one before it; returns its number."""
        with self._lock:
            if self.completed is None:
                self._next = feed.delivered
            elif is_generator or self._rewinds:
                self._next = self.completed
            self._rewinds = False
            self.begun, self.is_generator = self._next, is_generator
            self._end = math.inf if steps is None else self._next + steps
            self._iteration += 1
            return self._iteration

    def take(self, feed: Feed, iteration: int) -> Batch | None:
        """Returns the next batch of an iteration; None at its end."""
        with self._lock:
            if iteration != self._iteration:
                raise InvalidRequestError(
                    f"another iteration over the feed of {feed.spec.name!r} has begun and ended "
                    "this one; give each loop, and validation_data, its own feed"
                )
            number, batch = self._next, None
            if number < self._end:
                batch = self._kept.get(number)
                if batch is None:
                    self._check_position(feed, number)
                    batch = next_batch(feed, first=number == self.begun)
            if batch is None:
                return None
            if self.completed is not None:
                self._kept[number] = batch
            self._next += 1
            return batch

    def _check_position(self, feed: Feed, number: int) -> None:
        if self.completed is not None and feed.delivered != number:
            raise InvalidRequestError(
                f"the feed of {feed.spec.name!r} delivered {feed.delivered} batches, but fit took "
                f"{number}, so the state of its FeedCheckpoint would be wrong; let only fit take "
                "batches, and after an interrupt connect again with that state"
            )

    def complete(self, steps: int) -> int:
        """Counts steps of the current iteration as trained on; returns how many it has had."""
        assert self.completed is not None, "track comes first"
        # The last execution of an iteration can have fewer steps than Keras counts.
        count = min(steps, self._next - self.completed)
        for number in range(self.completed, self.completed + count):
            del self._kept[number]
        self.completed += count
        return count


_READERS: WeakKeyDictionary[Feed, FeedReader] = WeakKeyDictionary()


def reader_of(feed: Feed) -> FeedReader:
    """Returns the reader of a feed, the same for its datasets and its checkpoint."""
    return _READERS.setdefault(feed, FeedReader())


def next_batch(feed: Feed, *, first: bool) -> Batch | None:
    """Returns the next batch; None at the feed's end, or when it is closed within an iteration."""
    try:
        return feed.next()
    except FeedClosedError:
        if first:
            raise
    except StopIteration:
        if first and feed.delivered:
            raise FeedClosedError(
                f"the feed of {feed.spec.name!r} has ended after {feed.delivered} batches, but is "
                "read again. Give infeed.connect as many epochs as fit, and call fit(..., "
                "steps_per_epoch=feed.steps_per_epoch); for validation_data, or evaluate under a "
                "strategy, give generator or from_generator restart=True"
            ) from None
    return None


class Restarts:
    """The feed of each iteration, which begins where the first one began. Raises
    `InvalidRequestError` for an endless feed."""

    def __init__(self, feed: Feed) -> None:
        if feed.endless:
            raise InvalidRequestError(
                f"restart=True: the feed of {feed.spec.name!r} is endless, so its evaluation would "
                "never end; give infeed.connect epochs=1"
            )
        self._first = self._current = feed
        self._has_begun = False

    def begin(self) -> Feed:
        """Returns the feed of the next iteration, and closes the one before."""
        if self._has_begun or self._first.delivered:
            self.end()
            self._current = self._first.again()
        self._has_begun = True
        return self._current

    def end(self) -> None:
        """Closes the connection of the current iteration, except the first, which is the user's."""
        if self._current is not self._first:
            self._current.close()
