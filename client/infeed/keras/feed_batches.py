"""Feed as a `keras.utils.PyDataset`: its length, and what a second iteration of Keras gets.

Keras asks for batches by index, from 0 in each iteration. It begins again after it has taken one or
two to build the model, in each epoch of a `fit` without `steps_per_epoch`, in each evaluation of
`validation_data`, and in each further call with the same generator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

import keras

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.keras.batch_reader import next_batch, reader_of
from infeed.keras.elements import ToKerasElement
from infeed.shared.errors import FeedClosedError, InvalidRequestError

MAX_PEEKED = 2
"""Batches that Keras takes to build a model: one, and one ahead of it on an accelerator. More would
take other iterations for that, and repeat their batches."""


class FeedBatches(keras.utils.PyDataset):  # type: ignore[misc]
    """Gives Keras the batches of a feed, each once and in order; with `restart`, all in each
    iteration. Made by `generator`."""

    def __init__(
        self, feed: Feed, to_element: ToKerasElement, steps: int | None, *, restart: bool
    ) -> None:
        super().__init__()
        self._source = self._feed = feed
        self._to_element = to_element
        self._steps = steps
        self._restart = restart
        self._given = 0
        """Batches that the current iteration has got."""
        self._peeked: list[Batch] | None = []
        """The first batches, while Keras may have taken them to build the model; None later."""
        self._again: deque[Batch] = deque()
        """The first batches that the current iteration gets again."""

    @property
    def num_batches(self) -> int | None:
        """The batches of an iteration; None if it has no end, or its end is unknown."""
        if self._restart:
            left = self._source.steps
        else:
            left = self._feed.steps_left
            if left is not None:  # without batches, Keras would train on none, without an error
                left = max(1, left + len(self._peeked or self._again))
        return min((count for count in (left, self._steps) if count is not None), default=None)

    def __getitem__(self, index: int) -> Any:
        """Returns the next batch of the feed. Raises the feed's errors, and `InvalidRequestError`
        for an index out of order, and where an iteration would get other batches, or none."""
        if index == 0:
            self._begin()
        elif index != self._given:
            raise InvalidRequestError(
                f"Keras takes the batches of the feed of {self._source.spec.name!r} in another "
                f"order, {index} after {self._given - 1}; give fit(..., shuffle=False): the "
                "pipeline has shuffled the samples"
            )
        element = self._next()
        if element is None:
            self._refuse_end(index)
        return element

    def __iter__(self) -> Iterator[Any]:
        """Yields the elements up to `steps` or to the feed's end, for a loop of one's own."""
        self._begin()
        while self._given != self._steps and (element := self._next()) is not None:
            yield element
            del element  # its memory may be used again

    def _begin(self) -> None:
        if self._restart:
            if self._feed.delivered:
                if self._feed is not self._source:
                    self._feed.close()
                self._feed = self._source.again()
        elif reader_of(self._feed).completed is not None:
            raise InvalidRequestError(
                f"the FeedCheckpoint of the feed of {self._feed.spec.name!r} was made after its "
                "generator; make it before infeed.keras.generator(feed)"
            )
        elif self._given:
            if not self._peeked:
                self._refuse_to_begin_again()
            self._again, self._peeked = deque(self._peeked), None
        self._given = 0

    def _next(self) -> Any:
        """Returns the next element of the iteration; None at the end of the feed."""
        if self._again:
            batch: Batch | None = self._again.popleft()
        else:
            batch = next_batch(self._feed, first=not self._given)
            if batch is None:
                return None
            if self._peeked is not None and not self._restart:
                self._peeked = None if len(self._peeked) == MAX_PEEKED else [*self._peeked, batch]
        assert batch is not None
        self._given += 1
        if self._feed is not self._source and self._given == self.num_batches:
            self._feed.close()
        return self._to_element(dict(batch), batch.mask.astype("float32"))

    def _refuse_to_begin_again(self) -> NoReturn:
        raise InvalidRequestError(
            f"Keras begins again with the generator of the feed of {self._source.spec.name!r} "
            f"after {self._given} batches, and would get others, or none. Further epochs of fit: "
            "give fit(..., steps_per_epoch=feed.steps_per_epoch), and infeed.connect as many "
            "epochs; validation_data: give infeed.keras.generator(feed, restart=True), of a feed "
            "with epochs=1; another call: give it a generator of its own"
        )

    def _refuse_end(self, steps: int) -> NoReturn:
        name = self._source.spec.name
        if self._source.steps is None and not self._source.endless:
            raise InvalidRequestError(
                f"the feed of {name!r} has ended after {steps} batches, and Keras finds no end of "
                "data whose length is unknown; give infeed.keras.generator(feed, "
                f"steps={steps or 1})"
            )
        raise FeedClosedError(f"the feed of {name!r} has no batch left, or was closed")
