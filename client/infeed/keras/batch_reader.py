"""Batches between a feed and Keras: those that Keras has taken, and those trained on.

TensorFlow and Keras take batches before the training step needs them, and Keras throws some away:
it takes some to build the model, and begins again. Once a training is tracked, a batch is kept
until its step is complete, and an iteration begins with the first batch that is kept; except for
one that follows an end in the same `fit`, as by `Dataset.repeat`, whose steps are to come.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.errors import FeedClosedError, InvalidRequestError


class BatchReader:
    """Reads one feed for all iterations of its datasets. Batches are counted as the feed does."""

    def __init__(self) -> None:
        self.steps_per_epoch: int | None = None
        """Steps after which an iteration ends, counted from position 0; None: at the feed's end."""
        self.is_generator = False
        """Whether the current iteration is a generator's, and not a dataset's."""
        self.completed: int | None = None
        """Batches of the feed that were trained on; None if the training is not tracked."""
        self._kept: dict[int, Batch] = {}
        """Batches of the steps after the completed ones, if tracked."""
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        """Held while an iteration takes a batch: an abandoned one may still wait for its last."""
        self._iteration = self._begin = self._next = 0
        """The current iteration, its first batch, and the batch that it gets next."""
        self._end: int | None = None
        """The batch before which the current iteration ends."""
        self._has_ended = False
        """Whether the current iteration has reported its end; TensorFlow asks for it in advance."""
        self._rewinds = False
        """Whether the next iteration is the first that `fit` begins."""

    def track(self, feed: Feed) -> None:
        """Begins to track the training on batches that were not delivered yet."""
        with self._lock:
            if self.completed is None:
                self.completed = feed.delivered

    def complete(self, steps: int) -> int:
        """Counts steps of the current iteration as trained on; returns how many it has had."""
        with self._lock:
            assert self.completed is not None, "track comes first"
            # The last execution of an iteration can have fewer steps than Keras counts.
            count = min(steps, self._next - self.completed)
            for number in range(self.completed, self.completed + count):
                del self._kept[number]
            self.completed += count
            return count

    def untrained(self) -> int:
        """Returns how many batches the current iteration has got and not been trained on, if it has
        reported its end; 0 before."""
        with self._lock:
            return self._next - (self.completed or 0) if self._has_ended else 0

    def epoch_step(self, feed: Feed, number: int | None = None) -> int:
        """Returns the step within an epoch of a batch, or of the one that is trained on next; 0
        without `steps_per_epoch`."""
        done = (self.completed or 0) if number is None else number
        return (feed.first_step + done) % (self.steps_per_epoch or 1)

    def begin(self, feed: Feed, *, steps: int | None = None, is_generator: bool = False) -> int:
        """Begins an iteration, which ends the one before it; returns its number."""
        with self._lock:
            if self.completed is None:
                self._next = feed.delivered
            elif self._rewinds or is_generator or not self._has_ended:
                self._next = self.completed
            # Else `Dataset.repeat` begins before the iteration that has ended is trained on.
            self._rewinds = self._has_ended = False
            self._iteration += 1
            self._begin, self.is_generator = self._next, is_generator
            if self.steps_per_epoch is not None:
                steps = self.steps_per_epoch - self.epoch_step(feed, self._next)
            self._end = None if steps is None else self._next + steps
            return self._iteration

    def begin_training(self, feed: Feed) -> None:
        """Begins a `fit`: its first iteration begins with the batches that are kept."""
        with self._lock:
            self._rewinds = True
            if self.is_generator and self._begin != self.completed:
                raise InvalidRequestError(
                    f"another fit has read this generator of {feed.spec.name!r}, and Keras takes "
                    "batches of it in advance; give each fit its own infeed.keras.generator(feed)"
                )

    def take(self, feed: Feed, iteration: int) -> Batch | None:
        """Returns the next batch of an iteration; None at its end."""
        with self._taking:
            with self._lock:
                number = self._next
                if self._is_over(iteration):
                    self._has_ended |= iteration == self._iteration
                    return None
                if (batch := self._kept.get(number)) is not None:
                    self._next += 1
                    return batch
            batch = next_batch(feed, first=number == self._begin)
            if batch is None:
                return None
            with self._lock:
                if self.completed is not None:
                    self._kept[number] = batch
                    if self._is_over(iteration):  # another one has begun meanwhile
                        return None
                self._next += 1
                return batch

    def _is_over(self, iteration: int) -> bool:
        if self._end is not None and self._next >= self._end:
            return True
        return iteration != self._iteration and (self.completed, self._end) != (None, None)


_READERS: WeakKeyDictionary[Feed, BatchReader] = WeakKeyDictionary()


def reader_of(feed: Feed) -> BatchReader:
    """Returns the reader of a feed, the same for its datasets and its checkpoint."""
    return _READERS.setdefault(feed, BatchReader())


def next_batch(feed: Feed, *, first: bool) -> Batch | None:
    """Returns the next batch; None at the feed's end, or when it is closed within an iteration."""
    try:
        batch = next(feed, None)
    except FeedClosedError:
        if first:
            raise
        return None
    if batch is None and first and feed.delivered:
        raise FeedClosedError(
            f"the feed of {feed.spec.name!r} has ended after {feed.delivered} batches, and it is "
            "read again, as by each further epoch of Keras' fit: give "
            "infeed.tensorflow.from_generator(feed, steps_per_epoch=...), or fit for an "
            "infeed.keras.generator, the steps of an epoch, and infeed.connect as many epochs; as "
            "validation_data, infeed.keras.generator(feed, restart=True)"
        )
    return batch
