"""Cursor and shard plan: the progress of a run, and the positions of each step. Arithmetic only.

A cursor counts samples over all ranks, so it fits any world size. Rank r of w takes, at step k, the
positions [base + (k·w + r)·s, +s), where s is the stride, the positions of one batch.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from infeed.course import Course
from infeed.shared.arguments import MAX_INT64, check_integer
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE, PipelineSpec, Remainder
from infeed.shared.spec.segment import Lineage, read_lineage

CURSOR_VERSION = 1

_ALGORITHM = 2
"""Leading digits of a fingerprint, which tell the version of infeed's batch-making algorithm."""

MAX_POSITION = 1 << 62
"""The largest position that a server accepts: the end of a step there still fits into 64 bits."""

MAX_WORLD_SIZE = 1 << 16
"""The largest world size that a server accepts."""


@dataclass(frozen=True)
class Shard:
    """One trainer's share: rank `rank` of `world_size`. Raises `InvalidRequestError`."""

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        world_size = check_integer("world_size", self.world_size, 1, MAX_WORLD_SIZE)
        object.__setattr__(self, "world_size", world_size)
        object.__setattr__(self, "rank", check_integer("rank", self.rank, 0, MAX_WORLD_SIZE - 1))
        if self.rank >= self.world_size:
            raise InvalidRequestError(
                f"rank {self.rank} is out of range: with world_size {self.world_size}, it must be "
                f"from 0 to {self.world_size - 1}"
            )


@dataclass(frozen=True)
class Cursor:
    """The progress of a run: `position` samples were delivered, over all ranks. `resumable` is
    False if the run cannot continue there, and `segments` are the parts of an amended run so far;
    JSON omits both otherwise. The sizes are those of the last feed; with the course they determine
    the run's steps, but they do not bind the next feed. Cursors of 0.1 lack them."""

    pipeline: str
    fingerprint: str
    seed: int
    position: int
    version: int = CURSOR_VERSION
    resumable: bool = True
    segments: Lineage = ()
    batch_size: int | None = field(default=None, compare=False)
    world_size: int | None = field(default=None, compare=False)
    course: Course | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if self.resumable:
            del fields["resumable"]
        fields["segments"] = [segment.to_json() for segment in self.segments]
        if not self.segments:
            del fields["segments"]
        if self.course is not None:
            fields["course"] = self.course.to_json()
        return fields

    @classmethod
    def from_json(cls, state: Mapping[str, Any] | Cursor) -> Cursor:
        """Parses a result of `Feed.state()`. Raises `CursorError`."""
        if isinstance(state, Cursor):
            return state
        if not isinstance(state, Mapping):
            raise CursorError(
                f"a cursor is the dict that Feed.state() returns, not {type(state).__name__}"
            )
        version = state.get("version", CURSOR_VERSION)
        if version != CURSOR_VERSION:
            raise CursorError(
                f"cursor version {version!r} is not supported; this infeed reads version "
                f"{CURSOR_VERSION}"
            )
        known = ("version", "pipeline", "fingerprint", "seed", "position")
        if missing := [key for key in known if key not in state]:
            raise CursorError(f"the cursor lacks {', '.join(missing)}")
        sizes = {"batch_size": MAX_BATCH_SIZE, "world_size": MAX_WORLD_SIZE}
        optional = ("resumable", "segments", "course", *sizes)
        if unknown := sorted(str(key) for key in state if key not in (*known, *optional)):
            raise CursorError(f"the cursor has unknown keys: {', '.join(unknown)}")
        cursor = cls(
            pipeline=str(state["pipeline"]),
            fingerprint=str(state["fingerprint"]),
            seed=_read_int(state, "seed", MAX_INT64, "2^63 - 1"),
            position=_read_int(state, "position", MAX_POSITION, "2^62"),
            resumable=bool(state.get("resumable", True)),
            segments=read_lineage(state.get("segments", ())),
            **{
                name: _read_int(state, name, limit, str(limit), 1)
                for name, limit in sizes.items()
                if name in state
            },
            course=Course.from_json(state["course"]) if "course" in state else None,
        )
        cursor._check_segments()
        return cursor

    def check(self, spec: PipelineSpec, seed: int) -> None:
        """Raises `CursorError` if the cursor belongs to another run; lists every difference."""
        run = {"pipeline": spec.name, "seed": seed, "fingerprint": spec.fingerprint}
        differing = {name: value for name, value in run.items() if getattr(self, name) != value}
        if differing:
            details = "; ".join(
                f"its {name} is {getattr(self, name)!r}, expected {expected!r}"
                for name, expected in differing.items()
            )
            if is_of_other_algorithm(self.fingerprint, spec.fingerprint):
                details += (
                    " (the run began with an infeed whose random draws differ: finish it with "
                    "servers of that version, or connect without state to start again)"
                )
            elif "fingerprint" in differing:
                details += (
                    " (the definition, data or TensorFlow version has changed: restore it, use "
                    "`infeed amend`, or connect without state to start again)"
                )
            raise CursorError(
                f"the cursor belongs to another run: {details}", differs=", ".join(differing)
            )
        if not self.resumable or (self.position and not spec.guarantee.can_resume):
            raise CursorError(
                f"pipeline {spec.name!r} guarantees no order, so it cannot resume at the "
                f"cursor's position {self.position}; connect without state to start again"
            )

    def last_course(self, stride: int) -> Course:
        """Returns the course around the cursor. A cursor of 0.1 does not record it: then the course
        begins at its position, with `stride`."""
        if self.course is not None:
            return self.course
        if self.segments:
            return Course.of_segment(self.segments[-1])
        return Course(self.position // stride, self.position, stride)

    def moved_to(self, position: int) -> Cursor:
        """Returns the cursor of the same run at another position."""
        course = self.course
        if course is not None:
            steps = course.steps_at(self.position)
            if not course.length or course.steps_at(position) != steps:
                course = Course(steps, position, course.stride)
        return replace(self, position=position, course=course)

    def _check_segments(self) -> None:
        """Raises `CursorError` unless the cursor lies in its last segment."""
        for last in self.segments[-1:]:
            for name in ("pipeline", "fingerprint", "seed"):
                if getattr(last, name) != getattr(self, name):
                    raise CursorError(
                        f"the cursor's {name} is {getattr(self, name)!r}, but its last segment has "
                        f"{getattr(last, name)!r}; restore the cursor as it was saved"
                    )
            if self.position < last.start:
                raise CursorError(
                    f"the cursor's position {self.position} lies before its last segment, which "
                    f"begins at step {last.step} and position {last.start}; to see earlier steps "
                    "again, connect with steps=(first, end) and the run's newest state"
                )


@dataclass(frozen=True)
class ShardPlan:
    """The positions that one rank takes, step by step, from `base` on. Each batch takes `stride`
    positions; `position_count` is None if endless or unknown."""

    base: int
    shard: Shard
    stride: int
    position_count: int | None
    remainder: Remainder

    @property
    def global_stride(self) -> int:
        """The positions that all ranks take in one step."""
        return self.shard.world_size * self.stride

    @property
    def steps(self) -> int | None:
        """The number of steps, the same on every rank; None if endless or unknown."""
        if self.position_count is None:
            return None
        remaining = max(0, self.position_count - self.base)
        if self.remainder == "drop":
            return remaining // self.global_stride
        return -(-remaining // self.global_stride)

    def batch_range(self, step: int) -> tuple[int, int]:
        """Returns (start, count) of this rank's batch; slots beyond the count are empty."""
        start = self.base + (step * self.shard.world_size + self.shard.rank) * self.stride
        if self.position_count is None:
            return start, self.stride
        return start, min(self.stride, max(0, self.position_count - start))

    def min_position_count(self, step: int) -> int:
        """Returns how many positions the data must have for every rank to have this step."""
        begin = self.base + step * self.global_stride
        return begin + (self.global_stride if self.remainder == "drop" else 1)

    def step_end(self, step: int) -> int:
        """Returns the position at which a step ends on all ranks; the data may end earlier."""
        return self.base + (step + 1) * self.global_stride

    def position_after(self, steps: int) -> int:
        """Returns the run's position after every rank has taken this number of steps."""
        position = self.base + steps * self.global_stride
        if self.position_count is None:
            return position
        return min(position, max(self.base, self.position_count))

    @property
    def course(self) -> Course:
        """The course of a run that begins with these steps."""
        pads = self.remainder == "pad"
        return Course(0, self.base, self.global_stride, self.position_count, pads=pads)


def is_of_other_algorithm(fingerprint: str, served: str) -> bool:
    """Returns whether a fingerprint comes from a version of infeed that makes other batches."""
    return fingerprint[:_ALGORITHM] != served[:_ALGORITHM]


def _read_int(
    state: Mapping[str, Any], key: str, limit: int, limit_text: str, least: int = 0
) -> int:
    value = state[key]
    try:
        # Checkpoint libraries return integers as NumPy scalars.
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not least <= number <= limit:
        raise CursorError(
            f"the cursor's {key} is {value!r}, not an integer from {least} to {limit_text}"
        )
    return number
