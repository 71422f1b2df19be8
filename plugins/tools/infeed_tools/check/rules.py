"""Rules about values: mistakes in a pipeline whose transforms all run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infeed_server.config.model import Finding
from infeed_server.pipeline.definition import Pipeline
from infeed_server.transforms import Normalize, OneHot, Transform
from infeed_server.transforms.instances import Boxes
from infeed_tools.check.ranges import FieldRange

_OF_UNIT_RANGE = (
    *("random_brightness", "random_hue", "random_saturation"),
    "convert_image_dtype",
)
"""Transforms that expect floats from 0 to 1, as in `tf.image`."""

_MAX_UNIT = 2.0
"""Largest float in such an image: resizing a crop may overshoot 1."""

_FACTOR = 20.0
"""Ratio between the values' standard deviation and `std`, either way, that must be a mistake. A
wrong scale gives 255; statistics of another data set, at most a few."""


def value_findings(
    transforms: Sequence[Transform], ranges: Sequence[FieldRange]
) -> Iterator[Finding]:
    """Yields transforms whose input or output has implausible values."""
    for number, transform in enumerate(transforms):
        path = ("transforms", number, transform.name)
        for after in ranges:
            before = _before(ranges, number, after.field)
            was_finite = before is None or not before.not_finite
            if after.stage == number and after.not_finite and was_finite:
                count = after.not_finite
                yield path, f"{count} results in field {after.field!r} are NaN or infinite"
        before = _before(ranges, number, getattr(transform, "field", None))
        if before is not None and not before.is_empty:
            for text in _input_findings(transform, before):
                yield path, text


def unit_findings(definition: Pipeline, ranges: Sequence[FieldRange]) -> Iterator[Finding]:
    """Yields targets whose coordinates in some samples have other units than declared."""
    for name, target in definition.targets.items():
        if (before := _before_moves(definition, ranges, name)) is None or before.is_empty:
            continue
        is_normalized, path = getattr(target, "normalized", None), ("targets", name)
        if is_normalized and before.maximum > _MAX_UNIT:
            yield path, f"values of {_span(before)} are pixels; omit normalized"
        elif is_normalized is False and 0 < before.maximum <= 1:
            yield path, f"values of {_span(before)} are shares; write normalized: true"


def lost_findings(definition: Pipeline, ranges: Sequence[FieldRange]) -> Iterator[Finding]:
    """Yields targets whose boxes are all lost."""
    for name, (before, after) in row_counts(definition, ranges).items():
        if before and not after:
            problem = f"none of {before} boxes is in the picture after the transforms"
            yield ("targets", name), problem


def row_counts(definition: Pipeline, ranges: Sequence[FieldRange]) -> dict[str, tuple[int, int]]:
    """Returns the numbers of boxes before the first transform that moves them, and in batches."""
    counts = {}
    for name, target in definition.targets.items():
        before = _before_moves(definition, ranges, name)
        after = [found for found in ranges if found.field == f"{name}_count"]
        if isinstance(target, Boxes) and before and after:
            counts[name] = (before.count // 4, int(after[-1].total))
    return counts


def _before_moves(
    definition: Pipeline, ranges: Sequence[FieldRange], name: str
) -> FieldRange | None:
    """Returns the range of a target before the first transform that moves its picture."""
    picture, steps = definition.targets[name].of, definition.transforms
    moves = [
        number
        for number, step in enumerate(steps)
        if getattr(step.movement, "field", None) == picture
    ]
    return _before(ranges, moves[0] if moves else len(steps), name)


def _input_findings(transform: Transform, before: FieldRange) -> Iterator[str]:
    if isinstance(transform, Normalize):
        yield from _normalize_findings(transform, before)
    elif isinstance(transform, OneHot):
        if before.minimum < 0 or before.maximum >= transform.depth:
            yield (
                f"depth: {transform.depth} does not fit the labels {_span(before)}: labels outside "
                f"0 to {transform.depth - 1} become zeros; set depth: {before.maximum + 1:g}"
            )
    elif (
        transform.name in _OF_UNIT_RANGE
        and "float" in before.data_type
        and before.maximum > _MAX_UNIT
    ):
        yield (
            f"field {before.field!r} has {_span(before)}, but floats must be from 0 to 1 here; put "
            f"normalize with scale: {_usual_scale(before):g} before it"
        )


def _before(ranges: Sequence[FieldRange], number: int, field: str | None) -> FieldRange | None:
    """Returns the range of a field in the input of the transform `number`."""
    earlier = [other for other in ranges if other.field == field and other.stage < number]
    return max(earlier, key=lambda other: other.stage) if earlier else None


def _normalize_findings(transform: Normalize, before: FieldRange) -> Iterator[str]:
    scale = transform.scale or 1.0
    largest = max(abs(before.minimum), abs(before.maximum)) / abs(scale)
    mean, std = before.mean / scale, before.std / abs(scale)
    described = f"values of {_span(before)}" + (f", divided by {scale:g}" if scale != 1.0 else "")
    if "int" in before.data_type and abs(scale) < 1:
        yield f"scale is a divisor: {scale:g} makes values up to {largest:g}; use {1 / scale:g}"
        return
    if transform.scale is not None and 0 < largest < 1 / _FACTOR and abs(scale) > 1:
        yield (
            f"scale: {scale:g} does not fit {_span(before)}: the result is at most {largest:.2g}; "
            "omit scale"
        )
        return
    for value in transform.std or ():
        if std > 0 and not 1 / _FACTOR < std / abs(value) < _FACTOR:
            remedy = _scale_remedy(transform, before, std / abs(value))
            yield f"std {value:g} does not fit {described} (standard deviation {std:.3g}){remedy}"
            return
    for value in transform.mean or ():
        is_large = abs(value) > 3 * largest > 0
        is_small = 0 < 100 * abs(value) < largest and largest > 10 and abs(value - mean) > std
        if is_large or is_small:
            ratio = largest / abs(value)
            remedy = _scale_remedy(transform, before, ratio)
            yield f"mean {value:g} does not fit {described} (mean {mean:.3g}){remedy}"
            return


def _scale_remedy(transform: Normalize, before: FieldRange, ratio: float) -> str:
    if ratio > 1 and transform.scale is None and before.maximum > 1:
        return f"; for mean and std of values from 0 to 1 add scale: {_usual_scale(before):g}"
    if ratio < 1 and transform.scale is not None and transform.scale > 1:
        return f"; omit scale, or divide mean and std by {transform.scale:g}"
    return "; use the mean and std of the field's own values"


def _usual_scale(before: FieldRange) -> float:
    return 255.0 if 1 < before.maximum <= 255 else before.maximum


def _span(before: FieldRange) -> str:
    return f"{before.minimum:g} to {before.maximum:g}"
