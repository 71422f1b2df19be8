"""A stage of one sample: its fields as they are read, or after a transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from infeed.shared.spec import Array

Place = Literal["server", "trainer"]


@dataclass(frozen=True)
class SampleStage:
    """The fields of a sample after a stage, without a slot dimension.

    `name` is `source`, `map`, or a transform with its path: `transforms[1].resize`. `place` is
    where the stage runs.
    """

    name: str
    place: Place
    fields: dict[str, Any]
    error: str | None = None
    """Message of the failure; the fields are then those before the stage."""
    recovered: Array | None = None
    """What could be decoded of a damaged JPEG, uint8[height, width, 3], where the stage fails."""
