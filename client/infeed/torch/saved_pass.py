"""State of a dataset: the cursor of the run, and the end of the pass that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infeed.cursor import Cursor
from infeed.shared.arguments import check_integer
from infeed.shared.errors import CursorError, FeedClosedError, InvalidRequestError
from infeed.shared.spec import PipelineSpec

_KEYS = {"cursor", "until_epoch"}


@dataclass(frozen=True)
class SavedPass:
    """A position, and the epoch before which its pass ends.

    cursor       the cursor of `Feed.state()`; None: the beginning
    until_epoch  the first epoch that is not in the pass, counted from the pipeline's first; None:
                 the pass is endless, or its end is not known yet
    """

    cursor: Mapping[str, Any] | None
    until_epoch: int | None

    @classmethod
    def from_json(cls, state: Mapping[str, Any] | None, epochs: int | None) -> SavedPass:
        """Parses a result of `to_json`, a cursor, or None for the beginning.

        `epochs` are those of each pass. Raises `CursorError`.
        """
        if state is None:
            return cls(None, epochs)
        if not isinstance(state, Mapping) or not state.keys() & _KEYS:
            Cursor.from_json(state)
            return cls(state, None)
        if state.keys() != _KEYS:
            raise CursorError(
                "the state of a dataset has the keys cursor and until_epoch, not "
                f"{', '.join(map(str, state))}; give a result of FeedDataset.state_dict()"
            )
        cursor, until_epoch = state["cursor"], state["until_epoch"]
        if cursor is None:
            return cls(None, epochs)
        Cursor.from_json(cursor)
        try:
            if until_epoch is not None:
                check_integer("until_epoch", until_epoch, 1, or_none="an endless pass")
        except InvalidRequestError as error:
            raise CursorError(
                f"the state of a dataset is none: {error.message}; give a result of "
                "FeedDataset.state_dict()"
            ) from None
        return cls(cursor, until_epoch if epochs is not None else None)

    def to_json(self) -> dict[str, Any]:
        return {
            "cursor": None if self.cursor is None else dict(self.cursor),
            "until_epoch": self.until_epoch,
        }

    @classmethod
    def of_epoch(cls, epoch: int, epochs: int) -> SavedPass:
        """Returns the beginning of a pass, counted from 0, before its position is known."""
        return cls(None, (epoch + 1) * epochs)

    def is_located(self, epochs: int | None) -> bool:
        """Returns whether position and end are known, without the pipeline's spec."""
        if epochs is None:
            return True
        return self.until_epoch is not None if self.cursor else self.until_epoch == epochs

    def located(self, first: Cursor, spec: PipelineSpec, epochs: int | None) -> SavedPass:
        """Returns it with its position and end, from the cursor of position 0.

        For a cursor of `infeed.connect`, the end is that of `epochs` epochs from the one that it is
        in. Raises `FeedClosedError` for a pipeline whose epochs have no known position.
        """
        if epochs is None or self.is_located(epochs):
            return self
        if self.until_epoch is None:
            epoch = 0
            if self.cursor is not None and spec.sample_count:
                epoch = Cursor.from_json(self.cursor).position // spec.sample_count
            return replace(self, until_epoch=epoch + epochs)
        position = (self.until_epoch - epochs) * _samples(spec)
        return replace(self, cursor=replace(first, position=position).to_json())

    def following(self, cursor: Cursor, spec: PipelineSpec, epochs: int | None) -> SavedPass:
        """Returns the next pass of `epochs` epochs, after one that ended at a cursor.

        Raises `FeedClosedError` for a pipeline whose epochs have no known position.
        """
        samples = _samples(spec)
        # The samples of a remainder are left out; each pass begins with its first epoch.
        epoch = max(self.until_epoch or 0, -(-cursor.position // samples))
        position = epoch * samples
        return SavedPass(replace(cursor, position=position).to_json(), epoch + (epochs or 0))


def _samples(spec: PipelineSpec) -> int:
    """Returns the samples of an epoch; raises `FeedClosedError` if they are not known."""
    if not spec.sample_count or spec.guarantee.resume == "none":
        raise FeedClosedError(
            f"the dataset of {spec.name!r} has one pass, and no further pass of it can begin: the "
            "pipeline has no known number of samples, or no order. Give as many epochs as there "
            "are to one iteration, or restart=True to begin again with the first"
        )
    return spec.sample_count
