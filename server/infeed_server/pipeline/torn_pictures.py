"""Check of random geometry: a field must not move alone if others may show the same picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import within
from infeed_server.pipeline.first_samples import FirstSamples
from infeed_server.pipeline.moved_targets import MoveTargets
from infeed_server.pipeline.sample_graph import Specs
from infeed_server.sources.base import Source
from infeed_server.transforms.base import Step, describe_tensor
from infeed_server.transforms.fields import Drop, Rename
from infeed_server.transforms.movement import RandomGeometry

_ROWS = range(2, 7)
"""Numbers of a row that may be a point or a box, perhaps with a class."""

_PICTURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8|BM....\0\0\0\0|RIFF....WEBP|II\*\0|MM\0\*|\0\0\0\x0cjP",
    re.DOTALL,
)
"""First bytes of a JPEG, PNG, GIF, BMP, WebP, TIFF or JPEG 2000."""

_Values: TypeAlias = "list[npt.NDArray[Any]]"
"""A field's values in some samples; empty if none can be read."""

_Grids: TypeAlias = "set[tuple[int | None, ...]]"
"""Heights and widths of the moved picture."""


class _Stage(NamedTuple):
    """A field before a step, or after the last one."""

    place: int
    name: str
    spec: tf.TensorSpec


def refuse_torn_pictures(source: Source, steps: Sequence[Step], stages: Sequence[Specs]) -> None:
    """Raises `ConfigError` for a random crop or flip of one field when another may have to move
    with it, unless the draws have a name, which states the intention, or the other is a target.
    `stages[i]` are the fields before step i."""
    samples = FirstSamples(source)
    targets = {n for _, step in steps if isinstance(step, MoveTargets) for n in step.targets}
    for number, (ordinal, step) in enumerate(steps):
        moving = step.movement
        if not isinstance(moving, RandomGeometry) or moving.given_name:
            continue
        moved = _follow(moving.field, number, steps, stages)
        grids = {tuple(stage.spec.shape[:2]) for stage in moved if stage.spec.shape.rank}
        for name in stages[number]:
            followed = [*_follow(name, number, steps, stages)]
            if name in targets or name == moving.field or not followed[-1].name:
                continue
            decoded = [stage for stage in followed if stage.spec.dtype != tf.string]
            for stage in decoded or followed[:1]:
                values = partial(samples.values, steps[: stage.place], stage.name)
                if reason := _reason(stage.spec, grids, values):
                    break
            if reason:
                kind = "mask" if "picture" in reason else "boxes"
                kind = kind if moving.field == "image" else f"{{{kind}: {{of: {moving.field}}}}}"
                later = ", decoded later" if stage.spec != followed[0].spec else ""
                with within("transforms", ordinal):
                    raise step.error(
                        f"field {moving.field!r} would move at random without {name!r}, "
                        f"{reason} ({describe_tensor(stage.spec)}{later}). To move both, write "
                        f"targets: {{{name}: {kind}}} (docs/targets.md). Only if places in "
                        f"{name!r} are not places in {moving.field!r}, name the draws instead, "
                        f"which moves nothing else: draw: "
                        f"{step.name.replace('random', moving.field)}"
                    )


def _follow(
    name: str, number: int, steps: Sequence[Step], stages: Sequence[Specs]
) -> Iterator[_Stage]:
    """Yields a field at each stage from a step on, under its later names, until it ends. A field
    that is dropped before any step reads it together with others ends with a stage without a
    name."""
    yield _Stage(number, name, stages[number][name])
    is_read = False
    for place, (_, step) in enumerate(steps[number:], number + 1):
        fields = step.fields()
        if isinstance(step, Rename):
            name = step.names.get(name, name)
        elif isinstance(step, Drop):
            if name in step.names and not is_read:
                yield _Stage(place, "", stages[place - 1][name])
        else:
            is_read |= fields is None or (name in fields and len(fields) > 1)
        if name not in stages[place]:
            return
        yield _Stage(place, name, stages[place][name])


def _reason(spec: tf.TensorSpec, grids: _Grids, values: Callable[[], _Values]) -> str:
    """Returns why a field may have to move with a picture of one of these heights and widths; empty
    if it need not."""
    if spec.dtype == tf.string:
        contents = [content for value in values() for content in value.flat]
        return "which holds encoded pictures" if any(map(_PICTURE.match, contents)) else ""
    shape = spec.shape
    if not shape.rank or shape.rank < 2:
        return ""
    if shape.rank > 2 or any(_is_like(shape, grid) for grid in grids):
        return "which is a picture too"
    return "whose rows may be boxes or points" if shape[1] in _ROWS else ""


def _is_like(shape: tf.TensorShape, grid: tuple[int | None, ...]) -> bool:
    """Returns whether a matrix has a picture's aspect ratio, or unknown sides like a picture of
    unknown size."""
    if None in grid or not shape.is_fully_defined():
        return tuple(shape) == grid
    height, width = grid
    off = abs(shape[0] * width - shape[1] * height)  # a smaller one is rounded to whole pixels
    return bool(off < max(height or 0, width or 0) and min(shape) > 1)
