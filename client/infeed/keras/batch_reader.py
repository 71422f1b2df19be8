"""Batches between a feed and Keras: those that Keras has taken, and those trained on.

TensorFlow and Keras take batches before the training step needs them, and Keras throws some away:
it takes some to build the model, and begins again. Once a training is tracked, a batch is kept
until its step is complete, and an iteration begins with the batches that are kept; except for one
that follows an end in the same `fit`, as by `Dataset.repeat`, whose steps are to come.
"""

from __future__ import annotations

import threading
from collections import deque
from weakref import WeakKeyDictionary

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.errors import FeedClosedError, InvalidRequestError


class BatchReader:
    """Reads one feed for all iterations of its datasets."""

    def __init__(self) -> None:
        self.steps_per_epoch: int | None = None
        """Steps after which an iteration ends, counted from position 0; None: at the feed's end."""
        self.is_generator = False
        """Whether the current iteration is a generator's, and not a dataset's."""
        self.completed = 0
        """Batches of the feed that were trained on, if the training is tracked."""
        self._kept: deque[Batch] | None = None
        """Batches of the steps after the completed ones, in order; None if not tracked."""
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        """Held while an iteration takes a batch: an abandoned one may still wait for its last."""
        self._iteration = self._trained_iteration = 0
        self._given = 0
        """Batches that the current iteration has got."""
        self._limit: int | None = None
        """Batches that the current iteration gets."""
        self._replayed = 0
        """Batches of `_kept` that the current iteration, or one that it follows, has got."""
        self._ended = False
        """Whether the current iteration has reported its end; TensorFlow asks for it in advance."""
        self._before_fit = 0
        """The last iteration that began before the current `fit`."""

    @property
    def is_tracked(self) -> bool:
        """Whether batches are kept until they are trained on."""
        return self._kept is not None

    def track(self, feed: Feed) -> None:
        """Begins to track the training on batches that were not delivered yet."""
        with self._lock:
            if self._kept is None:
                self._kept = deque()
                self.completed = feed.delivered

    def complete(self, steps: int) -> int:
        """Counts steps of the current iteration as trained on; returns how many it has had."""
        with self._lock:
            assert self._kept is not None, "track comes first"
            # The last execution of an iteration can have fewer steps than Keras counts.
            count = min(steps, self._replayed)
            for _ in range(count):
                self._kept.popleft()
            self._replayed -= count
            self.completed += count
            return count

    def untrained(self) -> int:
        """Returns how many batches the current iteration has got and not been trained on, if it has
        reported its end; 0 before."""
        with self._lock:
            return self._replayed if self._ended else 0

    def epoch_step(self, feed: Feed, in_training: int = 0) -> int:
        """Returns the step within an epoch that is trained on next, 0 without `steps_per_epoch`.

        The one after the batches that are `in_training`.
        """
        done = feed.delivered if self._kept is None else self.completed + in_training
        return (feed.first_step + done) % (self.steps_per_epoch or 1)

    def begin(self, feed: Feed, *, steps: int | None = None, is_generator: bool = False) -> int:
        """Begins an iteration, which ends the one before it; returns its number.

        It has at most `steps` batches (None: up to the end of an epoch, or of the feed).
        """
        with self._lock:
            # `Dataset.repeat` begins an iteration before the one that has ended is trained on.
            is_first = self._iteration <= self._before_fit
            if not self._ended or is_generator or is_first:
                self._replayed = 0
            self._iteration += 1
            self._given, self._ended = 0, False
            self._limit, self.is_generator = steps, is_generator
            if self.steps_per_epoch is not None:
                self._limit = self.steps_per_epoch - self.epoch_step(feed, self._replayed)
            return self._iteration

    def begin_training(self, feed: Feed) -> None:
        """Begins a `fit`: its first iteration begins with the batches that are kept.

        Raises `InvalidRequestError` for a generator that another `fit` has read.
        """
        with self._lock:
            self._before_fit = self._iteration
            if not self.is_generator:
                return
            if self._iteration == self._trained_iteration:
                raise InvalidRequestError(
                    f"another fit has read this generator of {feed.spec.name!r}, and Keras takes "
                    "batches of it in advance; give each fit its own infeed.keras.generator(feed)"
                )
            self._trained_iteration = self._iteration

    def take(self, feed: Feed, iteration: int) -> Batch | None:
        """Returns the next batch of an iteration; None at its end.

        Raises `FeedClosedError` if the feed had ended, or was closed, before the iteration began.
        """
        with self._taking:
            with self._lock:
                if self._has_ended(iteration):
                    self._ended |= iteration == self._iteration
                    return None
                if self._kept is not None and self._replayed < len(self._kept):
                    self._replayed += 1
                    self._given += 1
                    return self._kept[self._replayed - 1]
                first = self._given == 0
            batch = next_batch(feed, first=first)
            with self._lock:
                if batch is None:
                    return None
                if self._kept is not None:
                    self._kept.append(batch)
                    if self._has_ended(iteration):
                        return None
                    self._replayed += 1
                self._given += 1
                return batch

    def _has_ended(self, iteration: int) -> bool:
        if self._limit is not None and self._given >= self._limit:
            return True
        is_current = iteration == self._iteration
        return not is_current and (self._kept is not None or self._limit is not None)


_READERS: WeakKeyDictionary[Feed, BatchReader] = WeakKeyDictionary()


def reader_of(feed: Feed) -> BatchReader:
    """Returns the reader of a feed, the same for its datasets and its checkpoint."""
    return _READERS.setdefault(feed, BatchReader())


def next_batch(feed: Feed, *, first: bool) -> Batch | None:
    """Returns the next batch; None at the feed's end, or when it is closed within an iteration.

    Raises `FeedClosedError` for the first batch of an iteration that has none.
    """
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
