"""Zoom out: the picture at a drawn place in a larger one."""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import Self, override

from infeed_server.transforms.base import Drawn, Key, require_at_run_time
from infeed_server.transforms.movement import RandomGeometry
from infeed_server.transforms.option_types import Range
from infeed_server.transforms.sizes import MAX_PIXELS


class RandomZoomOut(RandomGeometry):
    """Puts the picture at a drawn place in a larger one of drawn size.

    Result: type kept; the size varies.
    """

    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that a picture is changed."""
    scale: Range = (1.0, 4.0)
    """Range of the factor between the larger picture's sides and the picture's."""
    fill: Annotated[int, Field(ge=0, le=255)] = 0
    """Value of the pixels around the picture."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 1 <= self.scale[0] <= self.scale[1]:
            raise ValueError("scale: should be [min, max] with 1 <= min <= max")
        return self

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        """Returns the size of the larger picture, and the picture's upper left corner in it."""
        chance, share, x, y = tf.unstack(tf.random.stateless_uniform([4], key))
        low, high = self.scale
        factor = tf.where(chance < self.probability, low + (high - low) * share, 1.0)
        size = tf.cast(shape[:2], tf.float32)
        larger = tf.floor(size * factor)
        corner = tf.floor((larger - size) * tf.stack([y, x]))
        whole = tf.cast(tf.concat([larger, corner], 0), tf.int32)
        return dict(zip(("height", "width", "y", "x"), tf.unstack(whole), strict=True))

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        size = tf.stack([drawn["height"], drawn["width"]])
        problem = f"{self.name}: field {self.field} would have more than {MAX_PIXELS} pixels:"
        count = tf.reduce_prod(tf.cast(size, tf.int64))
        with tf.control_dependencies(require_at_run_time(count <= MAX_PIXELS, problem, size)):
            before = tf.stack([drawn["y"], drawn["x"]])
        space = tf.stack([before, size - tf.shape(pixels)[:2] - before], 1)
        value = tf.cast(self.fill if fill is None else fill, pixels.dtype)
        padded = tf.pad(pixels, tf.concat([space, [[0, 0]]], 0), constant_values=value)
        return tf.ensure_shape(padded, [None, None, pixels.shape[2]])

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        return points + tf.cast(tf.stack([drawn["x"], drawn["y"]]), tf.float32)

    @override
    def result_size(self, image: tf.Tensor, drawn: Drawn) -> tf.Tensor:
        return tf.stack([drawn["height"], drawn["width"]])
