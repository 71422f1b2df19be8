"""Sizes of images: resize and pad."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import override

from infeed_server.transforms.base import Drawn, FieldTransform, require_at_run_time
from infeed_server.transforms.movement import Geometry
from infeed_server.transforms.option_types import Finite, Positive, Size

ResizeMethod = Literal[
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "mitchellcubic", "gaussian"
]

AVERAGING_METHODS: frozenset[ResizeMethod] = frozenset({"bilinear", "area", "gaussian"})
"""Methods that compute weighted means of pixels, so no result leaves the pixels' range."""

MAX_PIXELS = 1 << 26
"""Pixels of an image whose shorter side is resized, as `decode_image` limits them: an image of 1 x
60,000 pixels would take gigabytes."""

_SMALL_TYPES = ("uint8", "int8")
"""Types so narrow that float32's rounding errors in such a mean never reach half a step."""


class Resize(Geometry):
    """Resizes an image to a size, or its shorter side to a length, as `tf.image.resize` does;
    integers are rounded.

    The field keeps its data type, so that uint8 is sent as uint8; `tf.image.resize` returns
    float32. Values are rounded to the nearest integer (halves to even) and clipped to the type's
    range.

    Result: type kept, or float32; `size`, or a size that varies.
    """

    size: Size | None = Field(None, examples=["[224, 224]"])
    """Size of the result, in pixels; either this or `short_side` is required."""
    short_side: Positive | None = None
    """Length of the shorter side. The image keeps its aspect ratio; the longer side is rounded
    down, as in torchvision."""
    max_side: Positive | None = None
    """With `short_side`: maximum length of the longer side; the image becomes smaller if
    necessary."""
    method: ResizeMethod = "bilinear"
    """Interpolation."""
    antialias: bool = False
    """Whether to smooth when shrinking, as in TensorFlow."""
    dtype: Literal["float32"] | None = None
    """`float32` keeps the values that `tf.image.resize` returns; none: the field's type."""

    @model_validator(mode="after")
    def _check(self) -> Resize:
        if (self.size is None) == (self.short_side is None):
            raise ValueError("should have one of size and short_side")
        if self.max_side is not None and self.max_side < (self.short_side or self.max_side + 1):
            raise ValueError("should have max_side only with short_side, and not below it")
        return self

    @override
    def identity(self) -> dict[str, Any]:
        identity = super().identity()
        if self.max_side is None:  # older fingerprints lack it
            del identity[self.name]["max_side"]
        return identity

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        size = self._checked_size(tf.shape(pixels)[:2])
        if nearest:
            return resize(pixels, size, "nearest")
        if self.dtype is None:
            return resize(pixels, size, self.method, antialias=self.antialias)
        resized = tf.image.resize(pixels, size, self.method, antialias=self.antialias)
        # tf.image.resize keeps the type for `nearest` and for an unchanged size.
        return tf.cast(resized, tf.float32)

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        before, after = shape[:2], self.result_size(shape[:2], drawn)
        ratios = tf.cast(after, tf.float32) / tf.cast(before, tf.float32)
        return points * ratios[::-1]

    @override
    def result_size(self, image: tf.Tensor, drawn: Drawn) -> tf.Tensor:
        image = tf.cast(image, tf.int64)
        if self.size is not None:
            return tf.zeros_like(image) + self.size
        assert self.short_side is not None
        size = image * self.short_side // tf.reduce_min(image, -1, keepdims=True)
        if self.max_side is None:
            return size
        longest = tf.reduce_max(size, -1, keepdims=True)
        smaller = tf.maximum(size * self.max_side // longest, 1)
        return tf.where(longest > self.max_side, smaller, size)

    def _checked_size(self, image: tf.Tensor) -> tuple[int, int] | tf.Tensor:
        """Returns the size of the result. Fails the sample if it is too large."""
        if self.size is not None:
            return self.size
        size = self.result_size(image, {})
        message = f"{self.name}: field {self.field} has a result of more than {MAX_PIXELS} pixels:"
        fits = require_at_run_time(tf.reduce_prod(size) <= MAX_PIXELS, message, size)
        with tf.control_dependencies(fits):
            return tf.cast(size, tf.int32)


def resize(
    pixels: tf.Tensor,
    size: tuple[int, int] | tf.Tensor,
    method: ResizeMethod,
    *,
    antialias: bool = False,
) -> tf.Tensor:
    """Resizes an image and keeps its data type."""
    resized = tf.image.resize(pixels, size, method, antialias=antialias)
    if resized.dtype == pixels.dtype:
        return resized
    if pixels.dtype.name in _SMALL_TYPES and method in AVERAGING_METHODS:
        # No value can be out of range, and clipping would take a pass over all pixels.
        return tf.cast(tf.round(resized), pixels.dtype)
    if pixels.dtype.is_integer:
        return tf.saturate_cast(tf.round(resized), pixels.dtype)
    return tf.cast(resized, pixels.dtype)


class Pad(Geometry):
    """Centres an image in a larger one; an odd pixel of padding goes below or to the right.

    Result: type kept; `size`.
    """

    size: Size
    """Size of the result, in pixels; a larger image is a bad sample."""
    value: Finite = 0.0
    """Value of the pixels around the image."""

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        value = self.value if fill is None else fill
        if pixels.dtype.is_integer and not (
            value.is_integer() and pixels.dtype.min <= value <= pixels.dtype.max
        ):
            raise self.error(f"value: {value:g} is not a {pixels.dtype.name}, the field's type")
        shape = tf.shape(pixels)
        with tf.control_dependencies(require_size(self, self.size, shape, is_largest=True)):
            space = self.size - shape[:2]
        before = tf.concat([space // 2, [0]], 0)
        after = tf.concat([space, [0]], 0) - before
        padded = tf.pad(
            pixels,
            tf.stack([before, after], 1),
            constant_values=tf.cast(value, pixels.dtype),
        )
        return tf.ensure_shape(padded, [*self.size, pixels.shape[2]])

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        before = (self.size - shape[:2]) // 2
        return points + tf.cast(before[::-1], tf.float32)

    @override
    def result_size(self, image: tf.Tensor, drawn: Drawn) -> tf.Tensor:
        return tf.zeros_like(image) + self.size


def require_size(
    step: FieldTransform, size: tuple[int, int], shape: tf.Tensor, *, is_largest: bool = False
) -> list[tf.Operation]:
    """Raises, or fails the sample, if an image of this shape is smaller than the size, or with
    `is_largest` larger. Returns control dependencies."""
    height, width = size
    problem = (
        f"field {step.field} must be at {'most' if is_largest else 'least'} {height} x {width} "
        "pixels (height x width); it is"
    )
    static = None if tf.executing_eagerly() else tf.get_static_value(shape)
    if static is not None and ((static[:2] > size) if is_largest else (static[:2] < size)).any():
        # Every sample has this shape, so the error is in the definition.
        raise step.error(f"{problem} {static[:2].tolist()}")
    fits = tf.reduce_all(shape[:2] <= size if is_largest else shape[:2] >= size)
    return require_at_run_time(fits, f"{step.name}: {problem}", shape[:2])
