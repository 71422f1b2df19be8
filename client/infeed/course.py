"""Course of a run: where its steps lie in the sample stream, over all ranks. Arithmetic only.

A position alone does not determine its step: a pass drops or pads the last samples that do not fill
a step, and the next pass begins after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from infeed.shared.arguments import check_integer
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.shared.spec.segment import Segment


@dataclass(frozen=True)
class Course:
    """The steps of a run from `step` on: it begins at position `start`, and each takes `stride`.

    end     the position at which the first pass, or the feed, ends; None: it is endless
    length  positions of each later pass; None: there is no later pass, or the length is unknown
    pads    whether the last step of a pass can have empty slots
    """

    step: int
    start: int
    stride: int
    end: int | None = None
    length: int | None = None
    pads: bool = False

    @classmethod
    def of_segment(cls, segment: Segment) -> Course:
        return cls(segment.step, segment.start, segment.global_stride)

    @classmethod
    def from_json(cls, value: Any) -> Course:
        """Parses the course of a cursor. Raises `CursorError`."""
        names = {field.name for field in fields(cls)}
        try:
            if not isinstance(value, Mapping) or not {"step", "start", "stride"} <= value.keys():
                raise InvalidRequestError(f"{value!r} lacks a step, start or stride")
            if unknown := sorted(map(str, value.keys() - names)):
                raise InvalidRequestError(f"it has unknown keys: {', '.join(unknown)}")
            positive = ("stride", "length")
            numbers = {
                name: check_integer(f"its {name}", number, int(name in positive))
                for name, number in value.items()
                if name != "pads"
            }
        except InvalidRequestError as error:
            raise CursorError(
                f"the cursor's course is not valid: {error.message}; restore the cursor as it was "
                "saved"
            ) from None
        return cls(**numbers, pads=bool(value.get("pads", False)))

    def to_json(self) -> dict[str, Any]:
        return {name: v for name, v in asdict(self).items() if v is not None and v is not False}

    @property
    def end_step(self) -> int | None:
        """The step after the first pass; None if the pass is endless."""
        return None if self.end is None else self.step + self._steps_in(self.end - self.start)

    def part_of(self, step: int) -> Course:
        """Returns the pass that contains a step. Raises `InvalidRequestError` if there is none."""
        if step < self.step:
            raise InvalidRequestError(
                f"step {step} lies before step {self.step}, position {self.start}, where the "
                "run's batch size, world size or passes changed; give a cursor saved before that",
                step=step,
            )
        if self.end_step is None or step < self.end_step:
            return replace(self, length=None)
        if not self.length or not (per_pass := self._steps_in(self.length)):
            raise InvalidRequestError(
                f"the run has no step {step}: it ends with step {self.end_step - 1}, at position "
                f"{self.end}; give a cursor of the run that continues there",
                step=step,
            )
        return self._later((step - self.end_step) // per_pass)

    def part_at(self, position: int) -> Course:
        """Returns the pass that contains a position, which must not lie before `start`."""
        if self.end is None or not self.length or position < self.end:
            return replace(self, length=None)
        return self._later((position - self.end) // self.length)

    def position(self, step: int) -> int:
        """Returns the position at which a step begins. Raises as `part_of` does."""
        part = self.part_of(step)
        return part.start + (step - part.step) * self.stride

    def steps_at(self, position: int) -> int:
        """Returns how many steps of the run had ended at a position."""
        part = self.part_at(position)
        steps = part.step - (part.start - position) // self.stride
        return steps if part.end_step is None else min(steps, part.end_step)

    def place(self, position: int) -> tuple[int, int] | None:
        """Returns the step that contains a position, and the offset within it; None if there is
        none."""
        part = self.part_at(position)
        step, offset = divmod(position - part.start, self.stride)
        step += part.step
        if position < self.start or (part.end_step is not None and step >= part.end_step):
            return None
        return step, offset

    def followed_by(self, feed: Course) -> Course:
        """Returns the course of a run continued by a feed with the same sizes, whose own course
        counts from step 0."""
        part = self.part_at(feed.start)
        if self.stride == feed.stride:
            on_step = (feed.start - part.start) % self.stride == 0
            is_same_pass = (part.end, self.pads) == (feed.end, feed.pads)
            if is_same_pass and (on_step or feed.start == feed.end):
                return self
            if on_step and part.start == self.start:
                return replace(feed, step=self.step, start=self.start)
        return self.changed_to(feed)

    def changed_to(self, feed: Course) -> Course:
        """Returns the course of a feed that continues with other sizes or passes."""
        return replace(feed, step=self.steps_at(feed.start))

    def _later(self, number: int) -> Course:
        """Returns a pass after the first one."""
        assert self.end is not None
        assert self.end_step is not None
        assert self.length is not None
        return replace(
            self,
            step=self.end_step + number * self._steps_in(self.length),
            start=self.end + number * self.length,
            end=self.end + (number + 1) * self.length,
            length=None,
        )

    def _steps_in(self, positions: int) -> int:
        steps, rest = divmod(max(0, positions), self.stride)
        return steps + (self.pads and rest > 0)
