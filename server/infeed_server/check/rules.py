"""Rules about values: what is wrong with a pipeline whose transforms all run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infeed_server.check.report import FieldRange
from infeed_server.config.model import Finding
from infeed_server.transforms import (
    ConvertImageDtype,
    OneHot,
    RandomBrightness,
    RandomHue,
    RandomSaturation,
    Transform,
)

_OF_UNIT_RANGE = (RandomBrightness, RandomHue, RandomSaturation, ConvertImageDtype)
"""Transforms for which floats are from 0 to 1, as in `tf.image`."""

_MAX_UNIT = 2.0
"""Largest float in such an image; a crop that was resized with overshoot may be above 1."""


def value_findings(
    transforms: Sequence[Transform], ranges: Sequence[FieldRange]
) -> Iterator[Finding]:
    """Yields transforms whose input or output has values that they are not meant for."""
    for number, transform in enumerate(transforms):
        path = ("transforms", number, transform.name)
        for after in ranges:
            before = _before(ranges, number, after.field)
            was_finite = before is None or not before.not_finite
            if after.stage == number and after.not_finite and was_finite:
                count = after.not_finite
                yield path, f"{count} results in field {after.field!r} are NaN or infinite"
        before = _before(ranges, number, getattr(transform, "field", None))
        if before is None or before.is_empty:
            continue
        low, high = before.minimum, before.maximum
        span = f"{low:g} to {high:g}"
        if isinstance(transform, OneHot) and (low < 0 or high >= transform.depth):
            text = f"depth: {transform.depth} does not fit the labels {span}: others become zeros"
            yield path, f"{text}; give depth: {high + 1:g}"
        is_float = "float" in before.data_type
        if isinstance(transform, _OF_UNIT_RANGE) and is_float and high > _MAX_UNIT:
            text = f"floats are from 0 to 1 here, but field {before.field!r} has {span}"
            yield path, f"{text}; put normalize with scale: 255 before it"


def _before(ranges: Sequence[FieldRange], number: int, field: str | None) -> FieldRange | None:
    """Returns the range of a field as the transform of this number gets it."""
    earlier = [other for other in ranges if other.field == field and other.stage < number]
    return max(earlier, key=lambda other: other.stage) if earlier else None
