"""A crop of random area and aspect ratio, as torchvision defines it."""

from __future__ import annotations

import math

import tensorflow as tf
from pydantic import field_validator
from typing_extensions import override

from infeed_server.transforms.base import Key
from infeed_server.transforms.geometry import Crop, ResizeMethod, Window, resize
from infeed_server.transforms.option_types import Range

_TRIES = 10
"""Windows that are drawn; the first that fits in the image is taken."""


class RandomResizedCrop(Crop):
    """Crops a window of random area and aspect ratio, and resizes it.

    As torchvision's: the window's share of the area is uniform in `scale`, the logarithm of its
    width over its height is uniform in the logarithms of `ratio`, and each position in the image
    is equally likely. If none of ten windows fits, the largest central one with a ratio in `ratio`
    is taken.

    Result: type kept; `size`.
    """

    scale: Range = (0.08, 1.0)
    """Range of the window's share of the image's area."""
    ratio: Range = (0.75, 1.3333333333333333)
    """Range of the window's width over its height."""
    method: ResizeMethod = "bilinear"
    """Interpolation, as of `resize`."""

    @field_validator("scale")
    @classmethod
    def _check_scale(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1] <= 1:
            raise ValueError("should be [min, max] with 0 < min <= max <= 1")
        return value

    @field_validator("ratio")
    @classmethod
    def _check_ratio(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("should be [min, max] with 0 < min <= max")
        return value

    @override
    def choose_window(self, shape: tf.Tensor, key: Key) -> Window:
        image = tf.cast(shape[:2], tf.float64)
        # float64: any offset in an image of any size is equally likely, to 50 bits. These are the
        # bits of `tf.random.stateless_uniform`; each operation adds to the time of a small image.
        drawn = tf.raw_ops.StatelessRandomUniform(
            shape=[2 * _TRIES + 2], seed=key, dtype=tf.float64
        )
        share, aspect, position = tf.split(drawn, [_TRIES, _TRIES, 2])
        sizes = self._draw_sizes(image, share, aspect)
        # The central window is the last, and always fits.
        sizes = tf.concat([sizes, self._central_size(image)[tf.newaxis]], 0)
        chosen = tf.argmax(tf.reduce_all((sizes >= 1) & (sizes <= image), axis=1))
        size = tf.gather(sizes, chosen)
        space = image - size
        offset = tf.where(chosen < _TRIES, position * (space + 1), space / 2)
        return tf.cast(tf.concat([tf.floor(offset), size], 0), tf.int32)

    def _draw_sizes(self, image: tf.Tensor, share: tf.Tensor, aspect: tf.Tensor) -> tf.Tensor:
        """Returns whole heights and widths, float64[n, 2], for draws in [0, 1), float64[n]."""
        least, most = self.scale
        root = tf.sqrt(tf.reduce_prod(image) * (least + (most - least) * share))
        low, high = (math.log(ratio) / 2 for ratio in self.ratio)
        root_of_ratio = tf.exp(low + (high - low) * aspect)
        return tf.round(tf.stack([root / root_of_ratio, root * root_of_ratio], axis=1))

    def _central_size(self, image: tf.Tensor) -> tf.Tensor:
        """Returns height and width, float64[2], of the largest window with an allowed ratio."""
        low, high = self.ratio
        # The height for the width and the least ratio; the width for the height and the greatest.
        opposite = tf.reverse(image, [0]) * [1 / low, high]
        return tf.maximum(tf.minimum(image, tf.round(opposite)), 1)

    @override
    def to_output(self, pixels: tf.Tensor) -> tf.Tensor:
        return resize(pixels, self.size, self.method)
