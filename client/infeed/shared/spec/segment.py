"""Segments: the parts of a run that were made from different definitions, seeds or batch sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from infeed.shared.arguments import MAX_INT64
from infeed.shared.errors import CursorError
from infeed.shared.spec.messages import from_message, to_message
from infeed.v1 import spec_pb2

MAX_SEGMENTS = 256
"""Segments of a run that a server accepts."""

MAX_START = 1 << 62
"""The greatest position of a run."""


@dataclass(frozen=True)
class Segment:
    """A part of a run, up to the start of the next one; spec.proto documents the fields."""

    step: int
    start: int
    pipeline: str
    fingerprint: str
    seed: int
    batch_size: int
    world_size: int
    epoch: int
    offset: int
    epoch_end: int
    sample_count: int
    shuffle: str
    removed: int = 0
    shrinks: bool = False

    @property
    def global_stride(self) -> int:
        """The positions that all ranks take in one step."""
        return self.batch_size * self.world_size

    def position_of(self, step: int) -> int:
        """Returns the position at which a step begins."""
        return self.start + (step - self.step) * self.global_stride

    def place_of(self, position: int) -> tuple[int, int, int]:
        """Returns the step, rank and slot of a position."""
        step, within = divmod(position - self.start, self.global_stride)
        return self.step + step, *divmod(within, self.batch_size)

    @property
    def epoch_length(self) -> int:
        """The positions of a whole epoch."""
        return self.sample_count - (self.removed if self.shrinks else 0)

    def to_json(self) -> dict[str, Any]:
        """Returns what differs from the defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: v for name, v in asdict(self).items() if v != defaults[name]}

    @classmethod
    def from_json(cls, value: Any, number: int) -> Segment:
        """Parses a segment of a cursor; `number` is its index. Raises `CursorError`."""
        where = f"segment {number} of the cursor"
        if not isinstance(value, Mapping):
            raise CursorError(f"{where} is {value!r}, not a mapping")
        if "is_rest" in value:
            raise CursorError(
                f"{where} begins within an epoch, in an order of its own, which this version no "
                "longer supports: continue from a cursor without this segment, and amend it at "
                "an epoch's first step"
            )
        known = {field.name: str(field.type) for field in fields(cls)}
        if unknown := sorted(str(key) for key in value.keys() - known.keys()):
            raise CursorError(f"{where} has unknown keys: {', '.join(unknown)}")
        # Checkpoint libraries make scalars of numbers.
        plain = {key: v.item() if hasattr(v, "item") else v for key, v in value.items()}
        for name, item in plain.items():
            is_size = name in ("batch_size", "world_size")
            limit = MAX_START if name == "start" else MAX_INT64
            is_number = isinstance(item, int)
            if type(item).__name__ != known[name] or (is_number and not is_size <= item <= limit):
                raise CursorError(f"{where}: its {name} is {item!r}, not a valid {known[name]}")
        try:
            return cls(**plain)
        except TypeError as error:
            raise CursorError(f"{where} is incomplete: {error}") from None


Lineage = tuple[Segment, ...]
"""The segments of a run, in order; empty for a run with one definition."""


def read_lineage(value: Any) -> Lineage:
    """Parses a cursor's segments. Raises `CursorError` unless each begins where a step before it
    ends."""
    if not isinstance(value, list | tuple) or len(value) > MAX_SEGMENTS:
        found = f"{len(value)} segments" if isinstance(value, list | tuple) else repr(value)
        raise CursorError(
            f"the cursor's segments are a list of at most {MAX_SEGMENTS}, not {found}"
        )
    lineage = tuple(Segment.from_json(item, number) for number, item in enumerate(value))
    reached, stride = (0, 0), 0  # step and position, and the samples of a step from there on
    for number, segment in enumerate(lineage):
        steps, positions = segment.step - reached[0], segment.start - reached[1]
        if steps < 0 or positions != steps * stride or (steps and not stride):
            raise CursorError(
                f"segment {number} of the cursor begins at step {segment.step} and position "
                f"{segment.start}, and what is before it at {reached[0]} and {reached[1]}, with "
                f"{stride} samples in a step; restore the cursor as it was saved"
            )
        reached, stride = (segment.step, segment.start), segment.global_stride
    return lineage


def lineage_to_proto(lineage: Iterable[Segment]) -> spec_pb2.Lineage:
    return spec_pb2.Lineage(segments=[to_message(spec_pb2.Segment, segment) for segment in lineage])


def lineage_from_proto(message: spec_pb2.Lineage) -> Lineage:
    return tuple(from_message(Segment, segment) for segment in message.segments)


def segment_at(lineage: Lineage, position: int) -> Segment | None:
    """Returns the segment of a position; None for a run without segments."""
    return next((one for one in reversed(lineage) if one.start <= position), None)


def epoch_at(lineage: Lineage, position: int, sample_count: int) -> int:
    """Returns the epoch of a position; `sample_count` is as for `end_of_epochs`."""
    if (segment := segment_at(lineage, position)) is None:
        return position // sample_count
    if position < segment.epoch_end:
        return segment.epoch
    count = sample_count if segment is lineage[-1] else segment.epoch_length
    return segment.epoch + 1 + (position - segment.epoch_end) // count


def end_of_epochs(lineage: Lineage, epochs: int, sample_count: int) -> int:
    """Returns the position at which a number of epochs end. An epoch that begins in the last
    segment has `sample_count` positions."""
    for segment, following in zip(lineage, (*lineage[1:], None), strict=False):
        if epochs <= segment.epoch:
            return segment.start
        if epochs == segment.epoch + 1:
            end = segment.epoch_end
        else:
            count = sample_count if following is None else segment.epoch_length
            end = segment.epoch_end + (epochs - segment.epoch - 1) * count
        if following is None or end <= following.start:
            return end
    return epochs * sample_count
