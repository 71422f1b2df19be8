"""Where a run stands, and which positions it takes next: arithmetic only.

A cursor counts samples over all ranks, so it fits any world size. A plan turns it into steps:
rank r of w takes, at step k, the positions [base + (k·w + r)·s, +s), where s is the stride, the
positions of one batch.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infeed.errors import CursorError, InvalidRequestError
from infeed.spec import PipelineSpec, Remainder

CURSOR_VERSION = 1


@dataclass(frozen=True)
class Shard:
    """This trainer's share: rank `rank` of `world_size`. Raises `InvalidRequestError`."""

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise InvalidRequestError(
                f"world_size must be at least 1, not {self.world_size}", world_size=self.world_size
            )
        if not 0 <= self.rank < self.world_size:
            raise InvalidRequestError(
                f"rank {self.rank} is out of range: with world_size {self.world_size} it is from "
                f"0 to {self.world_size - 1}",
                rank=self.rank,
                world_size=self.world_size,
            )


@dataclass(frozen=True)
class Cursor:
    """Where a run stands: `position` samples were delivered, over all ranks together."""

    pipeline: str
    fingerprint: str
    seed: int
    position: int
    version: int = CURSOR_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Cursor:
        """The cursor that `Feed.state()` gave. Raises `CursorError` that says what is wrong."""
        if not isinstance(state, Mapping):
            raise CursorError(f"a cursor is the dict of Feed.state(), not {type(state).__name__}")
        version = state.get("version", CURSOR_VERSION)
        if version != CURSOR_VERSION:
            raise CursorError(
                f"a cursor of version {version!r}; this infeed reads version {CURSOR_VERSION}"
            )
        known = ("version", "pipeline", "fingerprint", "seed", "position")
        if missing := [key for key in known if key not in state]:
            raise CursorError(f"the cursor lacks {', '.join(missing)}")
        if unknown := sorted(str(key) for key in state if key not in known):
            raise CursorError(f"the cursor has {', '.join(unknown)}, which this infeed cannot read")
        return cls(
            pipeline=_text(state, "pipeline"),
            fingerprint=_text(state, "fingerprint"),
            seed=_count(state, "seed"),
            position=_count(state, "position"),
        )

    def check(self, spec: PipelineSpec, seed: int) -> None:
        """Raises `CursorError` with every difference to the run that is about to begin."""
        pairs = {
            "pipeline": (self.pipeline, spec.name),
            "seed": (self.seed, seed),
            "fingerprint": (self.fingerprint, spec.fingerprint),
        }
        differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if differing:
            told = "; ".join(
                f"its {name} is {mine!r}, here it is {here!r}"
                for name, (mine, here) in differing.items()
            )
            raise CursorError(
                f"the cursor belongs to another run: {told}", differs=", ".join(differing)
            )
        if self.position and spec.guarantee.resume == "none":
            raise CursorError(
                f"pipeline {spec.name!r} promises no order, so no position of it can be returned "
                f"to, and the cursor stands at {self.position}; connect without state to begin anew"
            )


@dataclass(frozen=True)
class Plan:
    """The positions that one rank takes, step by step, from `base` on.

    `stride` is the positions of one batch, `total` the number there are, None when endless or
    unknown.
    """

    base: int
    shard: Shard
    stride: int
    total: int | None
    remainder: Remainder

    @property
    def global_stride(self) -> int:
        """The positions that all ranks take together in one step."""
        return self.shard.world_size * self.stride

    @property
    def steps(self) -> int | None:
        """The number of steps, the same on every rank; None when endless or unknown."""
        if self.total is None:
            return None
        remaining = max(0, self.total - self.base)
        if self.remainder == "drop":
            return remaining // self.global_stride
        return -(-remaining // self.global_stride)

    def at(self, step: int) -> tuple[int, int]:
        """(start, count) of a step; a count below the stride leaves slots empty."""
        start = self.base + (step * self.shard.world_size + self.shard.rank) * self.stride
        if self.total is None:
            return start, self.stride
        return start, min(self.stride, max(0, self.total - start))

    def needs(self, step: int) -> int:
        """The positions that the data must have for the step to be one, on every rank alike."""
        begin = self.base + step * self.global_stride
        return begin + (self.global_stride if self.remainder == "drop" else 1)

    def end(self, step: int) -> int:
        """The position where a step ends, over all ranks; there may be no data up to there."""
        return self.base + (step + 1) * self.global_stride

    def position(self, steps: int) -> int:
        """Where the run stands when every rank has taken that many steps."""
        position = self.base + steps * self.global_stride
        return position if self.total is None else min(position, max(self.base, self.total))


def _text(state: Mapping[str, Any], key: str) -> str:
    value = state[key]
    if not isinstance(value, str):
        raise CursorError(f"the cursor's {key} is {value!r}, not a string")
    return str(value)


def _count(state: Mapping[str, Any], key: str) -> int:
    value = state[key]
    try:
        # Checkpoint libraries hand integers back as NumPy scalars.
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise CursorError(f"the cursor's {key} is {value!r}, not a number from 0 to 2^63 - 1")
    return number


__all__ = ["CURSOR_VERSION", "Cursor", "Plan", "Shard"]
