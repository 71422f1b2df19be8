"""Run: a training job's steps, by segments and passes."""

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
    """A run from its first step on; `seed` None means the pipeline's."""

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
        """The segments of an amended run; empty if the run was never amended."""
        return () if self.cursor is None else self.cursor.segments

    def at_step(self, step: int) -> Segment | None:
        """Returns the segment that contains a step; None for a run without segments."""
        check_integer("step", step, 0, MAX_POSITION)
        return next((one for one in reversed(self.lineage) if one.step <= step), None)

    def part_of(self, step: int, stride: int) -> Course:
        """Returns the evenly spaced steps around a step: one pass of a segment. A run without a
        cursor is one endless pass with `stride`. Raises `InvalidRequestError` for a step that the
        run does not have or that its cursor does not record."""
        segment, cursor = self.at_step(step), self.cursor
        if cursor is None:
            return Course(0, 0, stride)
        course = cursor.last_course(stride)
        if segment is not None and segment is not self.lineage[-1] and step < course.step:
            return Course.of_segment(segment)
        if cursor.course is None and cursor.position and not self.lineage:
            raise InvalidRequestError(
                "the cursor comes from infeed 0.1, which did not record steps; if all steps had "
                'the same number of samples and no pass dropped any, add to it: "course": '
                '{"step": 0, "start": 0, "stride": samples of a step, of all ranks}'
            )
        return course.part_of(step)

    def place(self, position: int, stride: int) -> tuple[int, int] | None:
        """Returns the step that contains a position, and the offset within it; None if no step
        does, or the cursor does not record it. `stride` is for a run without a cursor."""
        course = self.cursor.last_course(stride) if self.cursor else Course(0, 0, stride)
        for segment, following in pairwise(self.lineage):
            if segment.start <= position < following.start:
                course = Course.of_segment(segment)
        return course.place(position)

    def sizes(self, step: int) -> tuple[int | None, int | None]:
        """Returns a step's batch size and number of ranks, from its segment or the cursor; None
        where neither records them."""
        stated: Segment | Cursor | None = self.at_step(step)
        cursor = self.cursor
        if stated is None or (cursor and cursor.course and step >= cursor.course.step):
            stated = cursor
        return (stated.batch_size, stated.world_size) if stated else (None, None)

    def parts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the steps [first, end) in ranges, each within one pass of one segment."""
        while first < end:
            ends = [segment.step for segment in self.lineage if segment.step > first]
            following = self.part_of(first, 1).end_step
            last = min(end, following or end, *ends)
            yield first, last
            first = last

    def up_to(self, first: int, end: int) -> Run:
        """Returns the run as it was at the steps [first, end), without later segments. Raises
        `InvalidRequestError` unless the steps lie in one part of the run."""
        part = next(self.parts(first, end))
        if part != (first, end):
            raise InvalidRequestError(
                f"steps ({first}, {end}) span several passes or segments of the run; the first "
                f"of them has the steps {part}; request each part separately"
            )
        segment = self.at_step(first)
        if segment is None or segment is self.lineage[-1]:
            return self
        names = (segment.pipeline, segment.fingerprint, segment.seed)
        segments = self.lineage[: self.lineage.index(segment) + 1]
        return Run(names[0], names[2], Cursor(*names, segment.start, segments=segments))
