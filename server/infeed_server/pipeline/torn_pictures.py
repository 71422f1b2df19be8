"""Check of random geometry: a field that is moved alone, beside others that may show the same."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed_server.pipeline.first_samples import FirstSamples
from infeed_server.pipeline.sample_graph import Specs
from infeed_server.sources import Source
from infeed_server.transforms.base import Step, describe_tensor, errors_at
from infeed_server.transforms.fields import Drop, Rename
from infeed_server.transforms.geometry import RandomGeometry

_BOX = 4
"""Numbers of a box."""

_ROWS = range(2, 9)
"""Numbers of a row that may be a point, a box, or the corners of one, perhaps with a class."""

_ENOUGH = 3
"""Samples whose lists tell whether they are made of boxes."""

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
    """A field before a step, or behind the last one."""

    place: int
    name: str
    spec: tf.TensorSpec


def refuse_torn_pictures(source: Source, steps: Sequence[Step], stages: Sequence[Specs]) -> None:
    """Raises `ConfigError` for a random crop or flip of one field beside another that may have to
    move with it, unless the name of its draws says that it is meant. `stages[i]` are the fields
    before step i."""
    samples = FirstSamples(source)
    for number, (ordinal, step) in enumerate(steps):
        if not isinstance(step, RandomGeometry) or step.given_name:
            continue
        moved = _follow(step.field, number, steps, stages)
        grids = {tuple(stage.spec.shape[:2]) for stage in moved if stage.spec.shape.rank}
        lists: set[tuple[int, ...]] = set()
        for name in stages[number]:
            followed = [*_follow(name, number, steps, stages)]
            if name == step.field or not followed[-1].name:
                continue
            decoded = (stage for stage in followed if stage.spec.dtype != tf.string)
            stage = next(decoded, followed[0])
            values = partial(samples.values, steps[: stage.place], stage.name)
            if reason := _reason(stage.spec, grids, lists, values):
                later = ", decoded later" if stage.spec != followed[0].spec else ""
                with errors_at(ordinal, step):
                    raise step.error(
                        f"field {step.field!r} would be moved at random, and not {name!r}, {reason}"
                        f" ({describe_tensor(stage.spec)}{later}); move both in a map with the key,"
                        " which docs/pipelines.md shows under 'Several pictures of a sample'; only "
                        f"if the places in {name!r} are not those in {step.field!r}, name the "
                        f"draws, which moves nothing else: draw: "
                        f"{step.name.replace('random', step.field)}"
                    )


def _follow(
    name: str, number: int, steps: Sequence[Step], stages: Sequence[Specs]
) -> Iterator[_Stage]:
    """Yields a field at each stage from a step on, under its later names, until it ends. A field
    that is dropped ends with a stage without a name."""
    yield _Stage(number, name, stages[number][name])
    for place, (_, step) in enumerate(steps[number:], number + 1):
        if isinstance(step, Rename):
            name = step.names.get(name, name)
        if isinstance(step, Drop) and name in step.names:
            yield _Stage(place, "", stages[place - 1][name])
        if name not in stages[place]:
            return
        yield _Stage(place, name, stages[place][name])


def _reason(
    spec: tf.TensorSpec, grids: _Grids, lists: set[tuple[int, ...]], values: Callable[[], _Values]
) -> str:
    """Returns why a field may have to move with a picture of one of these heights and widths;
    empty where it need not. `lists` collects the lengths of lists of numbers."""
    if spec.dtype == tf.string:
        return _reason_of_bytes(values(), grids, lists)
    shape = spec.shape
    if not shape.rank:
        return ""
    if shape.rank > 2 or (shape.rank == 2 and any(_is_like(shape, grid) for grid in grids)):
        return "which is a picture too"
    if shape.rank == 2:
        may_be_boxes = shape[1] in _ROWS and not _are_classes(values())
        return "whose rows may be boxes or points" if may_be_boxes else ""
    length = shape[0]
    if length == _BOX:
        return "" if _are_classes(values()) else "which may be a box"
    if any(_is_flat(length, grid) for grid in grids) and not _is_no_mask(values()):
        return "which has as many numbers as the picture"
    lengths = _padded_lengths(values(), length)
    if lengths and not any(one % _BOX for one in lengths):
        return "which may be a list of boxes"
    if lengths and spec.dtype.is_floating:
        if lengths in lists:
            return "which may be coordinates, beside another list of as many"
        lists.add(lengths)
    return ""


def _reason_of_bytes(values: _Values, grids: _Grids, lists: set[tuple[int, ...]]) -> str:
    contents = [value for sample in values for value in sample.flat]
    if any(_PICTURE.match(content) for content in contents):
        return "which holds encoded pictures"
    arrays = [array for array in map(_numpy_file, contents) if array is not None]
    if not arrays:
        return ""
    spec = tf.TensorSpec(arrays[0].shape, arrays[0].dtype)
    return _reason(spec, grids, lists, lambda: [one for one in arrays if one.shape == spec.shape])


def _numpy_file(content: bytes) -> npt.NDArray[Any] | None:
    """Returns the array of numbers in a NumPy file; None for any other content."""
    if not content.startswith(np.lib.format.MAGIC_PREFIX):
        return None
    try:
        array: npt.NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _is_like(shape: tf.TensorShape, grid: tuple[int | None, ...]) -> bool:
    """Returns whether a matrix has the aspect of a picture; where it is unknown, unknown sides."""
    if None in grid or not shape.is_fully_defined():
        return tuple(shape) == grid
    return bool(shape[0] * grid[1] == shape[1] * grid[0] and min(shape) > 1)


def _is_flat(length: int | None, grid: tuple[int | None, ...]) -> bool:
    """Returns whether a vector has a number, or some channels, for each pixel."""
    pixels = None if None in grid else math.prod(grid)  # type: ignore[arg-type]
    return bool(length and pixels and length in (pixels, 3 * pixels, 4 * pixels))


def _are_classes(values: _Values) -> bool:
    """Returns whether values are seen to be entries of classes: marks, or shares of one."""
    if not any(value.any() for value in values):
        return False
    return all(np.isin(value, (0, 1)).all() for value in values) or _are_shares(values)


def _are_shares(values: _Values) -> bool:
    sums = np.concatenate([np.ravel(np.sum(value, -1, np.float64)) for value in values])
    return bool(np.all(np.isclose(sums, 1, atol=1e-3) | (sums == 0)))


def _is_no_mask(values: _Values) -> bool:
    """Returns whether values are seen to be an embedding, or entries of classes."""
    is_signed = any(value.dtype.kind == "f" and (value < 0).any() for value in values)
    return bool(values) and (is_signed or _are_shares(values))


def _padded_lengths(values: _Values, length: int | None) -> tuple[int, ...]:
    """Returns the lengths of lists of places that zeros fill up to a length; none if values are
    not seen to be such lists."""
    found = tuple(int(np.max(np.flatnonzero(value), initial=-1)) + 1 for value in values)
    is_filled = length is not None and any(0 < one < length for one in found)
    is_places = not (_are_classes(values) or any((value < 0).any() for value in values))
    return found if is_filled and is_places and len(found) >= _ENOUGH else ()
