"""State of a dataset: the cursor of the run, and the end of the pass that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infeed.arguments import check_integer
from infeed.cursor import Cursor
from infeed.errors import CursorError, FeedClosedError, InvalidRequestError
from infeed.spec import PipelineSpec

_KEYS = {"cursor", "until_epoch"}


def is_state(value: Mapping[str, Any]) -> bool:
    """Returns whether a dict is a result of `SavedPass.to_json`, by its keys."""
    return value.keys() == _KEYS


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
        if not is_state(state):
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

    def with_end(self, spec: PipelineSpec, epochs: int | None) -> SavedPass:
        """Returns it with the end of its pass: for a cursor of `infeed.connect`, that of `epochs`
        epochs from the one that it is in."""
        if self.until_epoch is not None or epochs is None:
            return self
        epoch = 0
        if self.cursor is not None and spec.sample_count:
            epoch = Cursor.from_json(self.cursor).position // spec.sample_count
        return replace(self, until_epoch=epoch + epochs)

    def following(self, cursor: Cursor, spec: PipelineSpec, epochs: int | None) -> SavedPass:
        """Returns the next pass of `epochs` epochs, after one that ended at a cursor.

        Raises `FeedClosedError` for a pipeline whose epochs have no known position.
        """
        if not spec.sample_count or spec.guarantee.resume == "none":
            raise FeedClosedError(
                f"the dataset of {spec.name!r} has ended, and no further pass of it can begin: "
                "the pipeline has no known number of samples, or no order. Give as many epochs as "
                "there are to one iteration, or restart=True to begin again with the first"
            )
        # The samples of a remainder are left out; each pass begins with its first epoch.
        epoch = max(self.until_epoch or 0, -(-cursor.position // spec.sample_count))
        position = epoch * spec.sample_count
        return SavedPass(replace(cursor, position=position).to_json(), epoch + (epochs or 0))
