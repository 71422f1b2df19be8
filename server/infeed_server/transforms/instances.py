"""Instances of a picture: boxes and key points, whose rows move with it and vary in number."""

from __future__ import annotations

from typing import Annotated, Literal

import tensorflow as tf
from pydantic import BeforeValidator, Field

from infeed.shared.errors import ConfigError
from infeed_server.config.model import as_tuple
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import FieldName, describe_tensor, require_at_run_time
from infeed_server.transforms.option_types import Positive
from infeed_server.transforms.target import Moved, Target, wrong_shape

_MIN_AREA = 1e-6
"""Area of a box, in pixels, below which nothing of it is visible."""


class _Rows(Target):
    """A target whose rows belong to instances, such as objects of the picture."""

    normalized: bool = False
    """Whether coordinates are fractions of the picture's width and height, not pixels."""
    together: Annotated[tuple[FieldName, ...], BeforeValidator(as_tuple)] = Field((), alias="with")
    """Fields with one row for each row of this field, such as labels; a dropped row leaves all of
    them."""
    pad: Positive | None = None
    """Rows of the field in a batch, if their number varies: zeros fill the rest, and the field
    `NAME_count` holds the number of real rows."""
    surplus: Literal["refuse", "cut"] = "refuse"
    """A sample with more rows than `pad` is a bad sample, or keeps the first rows."""

    def fields(self, name: str) -> set[str]:
        return {name, *self.together} | ({f"{name}_count"} if self.pad else set())

    def to_pixels(self, points: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """Returns points [..., 2] in pixels of a picture of this size."""
        return points * tf.cast(size[::-1], points.dtype) if self.normalized else points

    def to_units(self, points: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """Returns points in the field's units, from pixels."""
        return points / tf.cast(size[::-1], points.dtype) if self.normalized else points

    def rows(self, sample: Sample, name: str) -> Sample:
        """Returns the fields that share the rows, without the zeros of an earlier `pad`. Raises
        `ConfigError` for a missing field, and fails the sample if their numbers of rows differ."""
        names = (name, *self.together)
        for field in self.together:
            if field not in sample or sample[field].shape.rank == 0:
                known = ", ".join(sorted(set(sample) - {name}))
                raise ConfigError(f"targets.{name}: with: no rows in {field!r}; fields: {known}")
        counts = tf.stack([tf.shape(sample[field])[0] for field in names])
        message = f"targets.{name}: {', '.join(names)} must have the same number of rows; they have"
        same = require_at_run_time(tf.reduce_all(counts == counts[0]), message, counts)
        with tf.control_dependencies(same):
            rows = {field: tf.identity(sample[field]) for field in names}
        count = sample.get(f"{name}_count")
        if count is None:
            return rows
        if count.shape.rank or not count.dtype.is_integer:
            kind = describe_tensor(count)
            raise ConfigError(
                f"targets.{name}: the field '{name}_count' holds {kind}, not the number of rows "
                f"of {name!r} before its zeros; rename it"
            )
        return {field: values[: tf.maximum(count, 0)] for field, values in rows.items()}

    def finish(self, sample: Sample, name: str) -> Sample:
        if self.pad is None:
            return sample
        rows = self.rows(sample, name)
        count = tf.shape(rows[name])[0]
        problem = f"targets.{name}: pad: at most {self.pad} rows, or surplus: cut; there are"
        is_cut = self.surplus == "cut"
        fits = require_at_run_time(is_cut | (count <= self.pad), problem, count)
        with tf.control_dependencies(fits):
            count = tf.minimum(count, self.pad)
        padded = {field: _pad(values, count, self.pad) for field, values in rows.items()}
        return {**sample, **padded, f"{name}_count": tf.cast(count, tf.int64)}


class Boxes(_Rows):
    """Boxes `[n, 4]` parallel to the picture's axes. A rotated box becomes the smallest box around
    it."""

    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    """Meaning of the four numbers: two corners, a corner and the size, or the centre and the
    size."""
    outside: Literal["clip", "keep"] = "clip"
    """Treatment of a box beyond the picture's edge: `clip` cuts it off there, and drops it if
    nothing is left; `keep` does not change it."""
    min_visible: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Minimum visible share of a box's area; a transform drops a box that shows less."""

    def move(self, sample: Sample, name: str, moved: Moved) -> Sample:
        shape = sample[name].shape
        if sample[name].dtype == tf.string or shape.rank != 2 or shape[1] not in (4, None):
            raise wrong_shape(name, sample[name], "[n, 4]")
        rows = self.rows(sample, name)
        boxes = _floats(rows[name])
        with tf.control_dependencies(self._require_boxes(boxes, name)):
            boxes = tf.identity(boxes)
        if moved.after is None:
            return {**sample, **rows, name: boxes}
        begin, end = (self.to_pixels(p, moved.before) for p in _to_corners(boxes, self.format))
        area = tf.reduce_prod(end - begin, 1)
        columns = tf.stack([begin, end], 1)  # of each box
        corners = tf.stack([columns[:, i] * [1, 0] + columns[:, j] * [0, 1] for i, j in _CORNERS])
        points = moved.points(corners)
        begin, end = tf.reduce_min(points, 0), tf.reduce_max(points, 0)
        edge = tf.cast(moved.after[::-1], boxes.dtype)
        inside = tf.clip_by_value(begin, 0.0, edge), tf.clip_by_value(end, 0.0, edge)
        visible = tf.reduce_prod(inside[1] - inside[0], 1)
        is_kept = visible >= self.min_visible * tf.reduce_prod(end - begin, 1) * (1 - _MIN_AREA)
        if self.outside == "clip":
            (begin, end), is_kept = inside, is_kept & (tf.minimum(area, visible) >= _MIN_AREA)
        begin, end = (self.to_units(points, moved.after) for points in (begin, end))
        rows[name] = _from_corners(begin, end, self.format)
        if self.outside == "clip" or self.min_visible:
            rows = {field: tf.boolean_mask(values, is_kept) for field, values in rows.items()}
        return {**sample, **rows}

    def _require_boxes(self, boxes: tf.Tensor, name: str) -> list[tf.Operation]:
        begin, end = _to_corners(boxes, self.format)
        are_boxes = tf.reduce_all(tf.math.is_finite(end - begin) & (begin <= end), 1)
        message = f"targets.{name}: not finite, or its end before its begin, as {self.format}: box"
        wrong = tf.boolean_mask(boxes, ~are_boxes)[:1]
        return require_at_run_time(tf.reduce_all(are_boxes), message, wrong)

    def finish(self, sample: Sample, name: str) -> Sample:
        if self.pad is None and sample[name].shape.rank and sample[name].shape[0] is None:
            raise ConfigError(
                f"targets.{name}: the number of boxes varies, but a batch has one shape; add pad, "
                "the largest number"
            )
        return super().finish(sample, name)


class Keypoints(_Rows):
    """Key points `[..., 2]`, x and y, or `[..., 3]` with a visibility, as in COCO: a point of
    visibility 0 is missing, and stays zero."""

    outside: Literal["keep", "mark"] = "keep"
    """Treatment of a point beyond the picture's edge: `mark` sets the point and its visibility to
    zero."""
    pairs: Annotated[
        tuple[Annotated[tuple[int, int], BeforeValidator(as_tuple)], ...], BeforeValidator(as_tuple)
    ] = ()
    """Pairs of a left and a right point, by number, `[[1, 2], [3, 4]]`: a mirrored picture swaps
    them."""

    def move(self, sample: Sample, name: str, moved: Moved) -> Sample:
        shape = sample[name].shape
        if sample[name].dtype == tf.string or not shape.rank or shape[-1] not in (2, 3):
            raise wrong_shape(name, sample[name], "[..., 2] or [..., 3]")
        points = _floats(sample[name])
        xy, seen = points[..., :2], points[..., 2:]
        if self.outside == "mark" and seen.shape[-1] == 0:
            raise ConfigError(f"targets.{name}: outside: mark needs a third number, the visibility")
        if moved.after is None:
            return {**sample, name: points}
        xy = moved.points(self.to_pixels(xy, moved.before))
        if self.outside == "mark":
            edge = tf.cast(moved.after[::-1], xy.dtype)
            is_inside = tf.reduce_all((xy >= 0) & (xy <= edge), -1, keepdims=True)
            seen = tf.where(is_inside, seen, 0.0)
        xy = self.to_units(xy, moved.after)
        if seen.shape[-1]:
            xy = tf.where(seen > 0, xy, 0.0)
        result = tf.concat([xy, seen], -1)
        return {**sample, name: self._swapped(result, name, moved) if self.pairs else result}

    def _swapped(self, points: tf.Tensor, name: str, moved: Moved) -> tf.Tensor:
        count = points.shape[-2] if points.shape.rank > 1 else None
        if count is None or max(map(max, self.pairs)) >= count:
            raise ConfigError(f"targets.{name}: pairs: a number is not below the {count} points")
        order = list(range(count))
        for left, right in self.pairs:
            order[left], order[right] = right, left
        size = tf.cast(moved.before, tf.float32)
        origin, right, below = tf.unstack(
            moved.points(tf.stack([[0.0, 0.0], [size[1], 0.0], [0.0, size[0]]]))
        )
        (a, b), (c, d) = (tf.unstack(point - origin) for point in (right, below))
        return tf.where(a * d < b * c, tf.gather(points, order, axis=-2), points)


_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Corners of a box: whether x and y come from its end."""


def _to_corners(boxes: tf.Tensor, format_: str) -> tuple[tf.Tensor, tf.Tensor]:
    first, second = boxes[:, :2], boxes[:, 2:]
    if format_ == "cxcywh":
        first -= second / 2
    return first, second if format_ == "xyxy" else first + second


def _from_corners(begin: tf.Tensor, end: tf.Tensor, format_: str) -> tf.Tensor:
    if format_ == "xyxy":
        return tf.concat([begin, end], 1)
    first = (begin + end) / 2 if format_ == "cxcywh" else begin
    return tf.concat([first, end - begin], 1)


def _pad(values: tf.Tensor, count: tf.Tensor, size: int) -> tf.Tensor:
    shape = tf.concat([[size - count], tf.shape(values)[1:]], 0)
    padded = tf.concat([values[:count], tf.zeros(shape, values.dtype)], 0)
    return tf.ensure_shape(padded, [size, *values.shape[1:]])


def _floats(values: tf.Tensor) -> tf.Tensor:
    return values if values.dtype == tf.float32 else tf.cast(values, tf.float32)
