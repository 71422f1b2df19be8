"""Feed as a `keras.utils.PyDataset`, whose batches Keras takes by index.

Keras restarts at index 0 after it has taken one or two batches to build the model, in each epoch of
a `fit` without `steps_per_epoch`, in each evaluation, and in each later call with the generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import keras

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed_frameworks.keras.elements import KerasElements
from infeed_frameworks.keras.feed_reader import Restarts, next_batch

MAX_PEEKED = 2
"""Batches that Keras takes to build a model: one, and on an accelerator one ahead. A larger number
would mistake other iterations for building, and repeat their batches."""


class FeedBatches(keras.utils.PyDataset):  # type: ignore[misc]
    """Gives Keras the batches of a feed, each once and in order; with `restart`, all in each
    iteration. Made by `generator`."""

    def __init__(
        self, feed: Feed, elements: KerasElements, steps: int | None, restarts: Restarts | None
    ) -> None:
        super().__init__()
        self._source = self._feed = feed
        self._elements = elements
        self._steps, self._restarts = steps, restarts
        self._given = 0
        """Batches that the current iteration has received."""
        self._peeked: list[Batch] | None = []
        """The first batches, while Keras may have taken them to build the model; None later."""
        self._again: list[Batch] = []
        """The first batches, which the current iteration receives again."""

    @cached_property
    def num_batches(self) -> int | None:
        """The batches of an iteration; None if it has no end, or its end is unknown."""
        # Counted when the first iteration begins: the feed may have been read before.
        left = self._source.steps if self._restarts else self._source.steps_left
        if left is not None:
            # Keras takes 0 batches without an error.
            left = max(1, left - (self._elements.is_cut and self._source.ends_empty))
        return left if self._steps is None else min(self._steps, left or self._steps)

    def __getitem__(self, index: int) -> Any:
        """Returns the next batch of the feed. Raises `InvalidRequestError` for an index out of
        order, and where an iteration would get other batches, or none."""
        name = self._source.spec.name
        if index == 0:
            self._begin()
        elif index != self._given:
            raise InvalidRequestError(
                f"Keras takes the batches of the feed of {name!r} out of order, {index} after "
                f"{self._given - 1}; call fit(..., shuffle=False)"
            )
        batch = self._next()
        if batch is None:
            raise FeedClosedError(
                f"the feed of {name!r} has no batch after {index}, or was closed; if its length is "
                f"unknown, use infeed.keras.generator(feed, steps={index or 1})"
            )
        return self._elements(batch)

    def __iter__(self) -> Iterator[Any]:
        """Yields the elements up to `steps` or the feed's end, for a custom loop."""
        self._begin()
        while self._given != self.num_batches and (batch := self._next()) is not None:
            yield self._elements(batch)
            del batch  # its memory may be used again

    def _begin(self) -> None:
        if self._restarts:
            self._feed = self._restarts.begin()
        elif self._given:
            if not self._peeked:
                raise InvalidRequestError(
                    f"Keras restarts the generator of {self._source.spec.name!r} after "
                    f"{self._given} batches, but would get others. For more epochs of fit, call "
                    "fit(..., steps_per_epoch=feed.steps_per_epoch), and give infeed.connect as "
                    "many epochs; for validation_data, use infeed.keras.generator(feed, "
                    "restart=True) of a feed with epochs=1; for another call, another generator"
                )
            self._again, self._peeked = self._peeked, None
        self._given = 0

    def _next(self) -> Batch | None:
        """Returns the next batch of the iteration; None at the end of the feed."""
        if self._again:
            batch: Batch | None = self._again.pop(0)
        else:
            batch = next_batch(self._feed, first=not self._given)
            if batch is None:
                return None
            if self._peeked is not None and not self._restarts:
                self._peeked = None if len(self._peeked) == MAX_PEEKED else [*self._peeked, batch]
        self._given += 1
        if self._restarts and self._given == self.num_batches:
            self._restarts.end()
        return batch
