"""Gaussian blur in whole numbers, bit-identical with every convolution kernel of TensorFlow."""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import Self, override

from infeed_augment.photometric import Photometric
from infeed_server.transforms.base import Drawn, Key, RandomTransform, require_at_run_time
from infeed_server.transforms.option_types import Range

_UNIT = 1 << 12
"""Sum of the weights. With 12-bit values, sums have 24 bits, which float32 holds exactly in
any order of a convolution's additions."""

_FRACTION = 16
"""Steps of one value between the two passes; 255 values take 12 bits."""


class RandomGaussianBlur(RandomTransform, Photometric):
    """Blurs the picture with a Gaussian of drawn width; the picture is reflected at its border.

    Result: uint8; shape kept.
    """

    kernel: Annotated[int, Field(ge=3, le=101)]
    """Side of the kernel in pixels; odd."""
    sigma: Range = (0.1, 2.0)
    """Range of the standard deviation, in pixels."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel: {self.kernel} is even; give {self.kernel + 1}")
        if not 0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError("sigma: should be [min, max] with 0 < min <= max")
        return self

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        low, high = self.sigma
        return {"sigma": low + (high - low) * tf.random.stateless_uniform([], key)}

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        border, shape = self.kernel // 2, tf.shape(pixels)
        fits = require_at_run_time(
            tf.reduce_all(shape[:2] > border), f"a blur of {self.kernel} pixels is too wide", shape
        )
        with tf.control_dependencies(fits):
            padding = [[border, border], [border, border], [0, 0]]
            x = tf.pad(tf.cast(pixels, tf.float32) * _FRACTION, padding, "REFLECT")
        weights = self._weights(self.draw_field(pixels, key)["sigma"])
        kernel = tf.tile(weights[:, tf.newaxis], [1, pixels.shape[2]])[..., tf.newaxis]
        columns = _convolve(x, kernel[:, tf.newaxis])
        rows = _convolve(columns, kernel[tf.newaxis])
        return tf.cast(tf.floor(rows / _FRACTION + 0.5), tf.uint8)

    def _weights(self, sigma: tf.Tensor) -> tf.Tensor:
        """Returns whole numbers, float32[kernel], whose sum is `_UNIT`."""
        border = self.kernel // 2
        distances = tf.range(-border, border + 1, dtype=tf.float32)
        density = tf.exp(-0.5 * tf.square(distances / sigma))
        weights = tf.round(_UNIT * density / tf.reduce_sum(density))
        rest = _UNIT - tf.reduce_sum(weights)
        return weights + rest * tf.cast(distances == 0, tf.float32)


def _convolve(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Returns the weighted means of a picture, rounded to whole numbers."""
    sums = tf.nn.depthwise_conv2d(x[tf.newaxis], kernel, [1, 1, 1, 1], "VALID")[0]
    return tf.floor(sums / _UNIT + 0.5)
