"""Tensor reader: one feed's batches as tensors, and the number of them that the loop has taken.

For PyTorch and TensorFlow; it imports neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infeed.batch import Batch
from infeed.feed import Feed

Tensors = dict[str, Any]


class TensorReader:
    """Reads a feed. A framework may take batches ahead of its loop, and drop them.

    An exception of a signal handler neither loses nor counts a batch: each method changes one
    attribute, once, and makes no call between that and its end.
    """

    def __init__(self, feed: Feed, convert: Callable[[Batch], Tensors], ahead: int = 0) -> None:
        self.feed = feed
        self.ended = False
        """Whether `next` has raised `StopIteration`."""
        self._convert = convert
        self._ahead = ahead
        """Batches that the framework takes before its loop does."""
        self._confirmed: int | None = None
        """Batches whose steps have ended; None if the framework does not report them."""
        self._taken = 0
        """Batches that the loop had taken when the framework began to iterate."""
        self._kept: tuple[tuple[Batch, ...], int] = ((), 0)
        """The last batches that the feed has delivered, and how many of them were returned."""

    @property
    def returned(self) -> int:
        """Batches of the feed that were returned."""
        batches, returned = self._kept
        return self.feed.delivered - len(batches) + returned

    @property
    def taken(self) -> int:
        """Batches of the feed that the loop has taken."""
        if self._confirmed is not None:
            return self._confirmed
        # At the end the framework asks for a batch ahead that there is not.
        ahead = max(0, self._ahead - self.ended)
        return max(self._taken, self.returned - ahead)

    def begin(self, ahead: int, *, confirms: bool = False) -> None:
        """Begins an iteration with the first batch that the loop has not taken.

        `confirms` is whether the framework reports the end of each step, by `confirm`, so that the
        batches ahead need not be known.
        """
        taken = self.taken
        batches, returned = self._kept
        returned -= self.returned - taken
        self._taken, self._ahead = taken, ahead
        self._confirmed = taken if confirms else None
        self._kept = (batches, returned)

    def confirm(self) -> None:
        """Counts the first batch that was not confirmed, if there is one, as taken."""
        if self._confirmed is not None:
            self._confirmed = min(self._confirmed + 1, self.returned)

    def next(self) -> Tensors:
        """Returns the next batch as tensors; raises `StopIteration` at the end, and as the feed."""
        batches, returned = self._kept
        open_batches = self.returned - self.taken
        if (surplus := returned - open_batches) > 0:
            batches, returned = batches[surplus:], open_batches
        self._kept = (batches, returned)  # frees memory for the batch to come
        if returned == len(batches):
            if self.ended:
                raise StopIteration
            # Not next(): an interrupt could come between its return and the assignment.
            for batch in self.feed:
                self._kept = ((*batches, batch), returned)
                break
            else:
                self.ended = True
                raise StopIteration
        batches, returned = self._kept
        tensors = self._convert(batches[returned])
        self._kept = (batches, returned + 1)
        return tensors
