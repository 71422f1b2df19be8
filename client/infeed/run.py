"""Run: the steps of a training, and where the samples of each lie in the sample stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from infeed.cursor import MAX_POSITION, MAX_WORLD_SIZE, Cursor
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE
from infeed.shared.spec.segment import Lineage, Segment


@dataclass(frozen=True)
class Run:
    """A run from its first step on. `seed` None: the pipeline's."""

    pipeline: str
    seed: int | None = None
    cursor: Cursor | None = None

    @classmethod
    def of(cls, cursor: Mapping[str, Any] | Cursor) -> Run:
        """Returns the run of a cursor. Raises `CursorError`."""
        parsed = Cursor.from_json(cursor)
        return cls(parsed.pipeline, parsed.seed, parsed)

    @property
    def lineage(self) -> Lineage:
        """The segments of an amended run; empty for another."""
        return () if self.cursor is None else self.cursor.segments

    def at_step(self, step: int) -> Segment | None:
        """Returns the segment that has a step; None for a run without segments."""
        check_integer("step", step, 0, MAX_POSITION)
        return next((one for one in reversed(self.lineage) if one.step <= step), None)

    def sizes(self, step: int) -> tuple[int | None, int | None]:
        """Returns the batch size and the number of ranks of a step, by its segment or by the
        cursor; None where neither states it."""
        stated = self.at_step(step) or self.cursor
        return (stated.batch_size, stated.world_size) if stated else (None, None)

    def parts(self, first: int, end: int) -> list[tuple[int, int]]:
        """Returns the steps [first, end) in ranges, each of which lies in one segment."""
        inside = [segment.step for segment in self.lineage if first < segment.step < end]
        bounds = [first, *dict.fromkeys(inside), end]
        return [*pairwise(bounds)]

    def up_to(self, first: int, end: int) -> Run:
        """Returns the run as it was at the steps [first, end), without later segments. Raises
        `InvalidRequestError` unless they lie in one segment."""
        segment = self.at_step(first)
        if segment is None:
            return self
        if len(parts := self.parts(first, end)) > 1:
            listed = ", ".join(f"({a}, {b})" for a, b in parts)
            raise InvalidRequestError(
                f"steps ({first}, {end}) lie in {len(parts)} segments of the run, the first of "
                f"which has steps {segment.step} to {parts[0][1] - 1}; ask for each part: {listed}"
            )
        names = (segment.pipeline, segment.fingerprint, segment.seed)
        number = max(i for i, one in enumerate(self.lineage) if one.step <= first)
        segments = self.lineage[: number + 1]
        return Run(names[0], names[2], Cursor(*names, segment.start, segments=segments))

    def position(self, step: int, batch_size: int, world_size: int, rank: int = 0) -> int:
        """Returns the position of the first sample that a rank takes in a step.

        step        the step, from 0
        batch_size  positions of a batch of one rank
        world_size  number of ranks
        rank        the rank, from 0

        In a run with segments, both sizes are the segment's. In another it is right for all steps
        since the run's last change of batch size or world size. Raises `InvalidRequestError`.
        """
        segment = self.at_step(step)
        if segment is not None:
            batch_size, world_size = segment.batch_size, segment.world_size
        check_integer("batch_size", batch_size, 1, MAX_BATCH_SIZE)
        check_integer("world_size", world_size, 1, MAX_WORLD_SIZE)
        check_integer("rank", rank, 0, world_size - 1)
        if segment is not None:
            first = segment.position_of(step)
        else:
            stride = batch_size * world_size
            first = (self.cursor.position % stride if self.cursor else 0) + step * stride
        return check_integer("position", first + rank * batch_size, 0, MAX_POSITION)
