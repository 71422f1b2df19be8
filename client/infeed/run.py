"""Run: the steps of a training, by segments and passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from infeed.course import Course
from infeed.cursor import MAX_POSITION, Cursor
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
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

    def part_of(self, step: int, stride: int) -> Course:
        """Returns the steps around a step that lie evenly: a pass of a segment. `stride` is for a
        run without a cursor, which is one endless pass. Raises `InvalidRequestError` for a step
        that the run has not, or that its cursor does not tell."""
        segment, cursor = self.at_step(step), self.cursor
        if cursor is None:
            return Course(0, 0, stride)
        course = cursor.last_course(stride)
        if segment is not None and segment is not self.lineage[-1] and step < course.step:
            return Course.of_segment(segment)
        if cursor.course is None and cursor.position and not self.lineage:
            raise InvalidRequestError(
                "the cursor, as one of infeed 0.1, does not tell its steps; if each had as many "
                "samples, and no pass left any out, add to it: "
                '"course": {"step": 0, "start": 0, "stride": samples of a step, of all ranks}'
            )
        return course.part_of(step)

    def place(self, position: int, stride: int) -> tuple[int, int] | None:
        """Returns the step that has a position, and the offset in it; None if no step has it, or
        the cursor does not tell. `stride` is for a run without a cursor."""
        course = self.cursor.last_course(stride) if self.cursor else Course(0, 0, stride)
        for segment, following in pairwise(self.lineage):
            if segment.start <= position < following.start:
                course = Course.of_segment(segment)
        return course.place(position)

    def sizes(self, step: int) -> tuple[int | None, int | None]:
        """Returns the batch size and the number of ranks of a step, by its segment or by the
        cursor; None where neither states it."""
        stated: Segment | Cursor | None = self.at_step(step)
        cursor = self.cursor
        if stated is None or (cursor and cursor.course and step >= cursor.course.step):
            stated = cursor
        return (stated.batch_size, stated.world_size) if stated else (None, None)

    def parts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the steps [first, end) in ranges, each of which lies in a pass of a segment."""
        while first < end:
            ends = [segment.step for segment in self.lineage if segment.step > first]
            following = self.part_of(first, 1).end_step
            last = min(end, following or end, *ends)
            yield first, last
            first = last

    def up_to(self, first: int, end: int) -> Run:
        """Returns the run as it was at the steps [first, end), without later segments. Raises
        `InvalidRequestError` unless they lie in one part of it."""
        part = next(self.parts(first, end))
        if part != (first, end):
            raise InvalidRequestError(
                f"steps ({first}, {end}) lie in several passes or segments of the run; the first "
                f"of them has steps {part}; ask for each part"
            )
        segment = self.at_step(first)
        if segment is None or segment is self.lineage[-1]:
            return self
        names = (segment.pipeline, segment.fingerprint, segment.seed)
        segments = self.lineage[: self.lineage.index(segment) + 1]
        return Run(names[0], names[2], Cursor(*names, segment.start, segments=segments))
