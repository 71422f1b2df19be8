"""Movement of pixels and points: the base class of transforms that move a picture and its targets
by one draw."""

from __future__ import annotations

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import (
    Drawn,
    FieldTransform,
    Key,
    RandomTransform,
    require_image,
)


class Geometry(FieldTransform):
    """A transform that moves the pixels of a picture.

    A subclass implements `apply_pixels` and `apply_points` from what `draw_shape` returns, which
    depends on the picture's shape and the key alone. So a mask, boxes and points move with it.
    """

    @property
    @override
    def movement(self) -> Geometry:
        return self

    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:  # noqa: ARG002
        """Returns what is drawn for a picture of this shape, which begins with height and width."""
        return {}

    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        """Moves a picture [height, width, channels]. A mask takes the `nearest` value, and `fill`
        where the picture has no pixel."""
        raise NotImplementedError(type(self).__name__)

    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        """Moves points, float32[..., 2], x and y in pixels from the upper left corner of a picture
        of this shape. Pixel i spans i to i + 1, so the picture ends at its width."""
        raise NotImplementedError(type(self).__name__)

    def result_size(self, image: tf.Tensor, drawn: Drawn) -> tf.Tensor:  # noqa: ARG002
        """Returns the sizes of results, [..., 2] of height and width, from the sizes of images."""
        return image

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        pixels = require_image(x, self)
        return self.apply_pixels(pixels, self.draw_shape(tf.shape(pixels), key))

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        return self.draw_shape(tf.shape(require_image(x, self)), key)


class RandomGeometry(RandomTransform, Geometry):
    """A random transform that moves pixels. What belongs to them in other fields, such as a mask,
    moves along if the pipeline's `targets` name it."""
