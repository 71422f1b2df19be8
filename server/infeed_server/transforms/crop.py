"""Crops: which window of an image, then its pixels."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import tensorflow as tf
from pydantic import field_validator
from typing_extensions import override

from infeed.errors import ConfigError
from infeed_server.transforms.base import FieldTransform, Key
from infeed_server.transforms.checks import require_at_run_time, require_image
from infeed_server.transforms.options import Range, Size
from infeed_server.transforms.resize import Method, resize

Window: TypeAlias = tf.Tensor
"""int32[4]: y, x, height, width, in pixels."""

_INT32_MAX = (1 << 31) - 1


class Crop(FieldTransform):
    """A window of the image. A subclass says which, from the image's shape and the key alone.

    So a JPEG can be cropped while it is decoded: see `fuse`.
    """

    size: Size

    def window(self, shape: tf.Tensor, key: Key) -> Window:
        """The window in an image of that shape, int32[3]; fails when the image is too small."""
        raise NotImplementedError(type(self).__name__)

    def shaped(self, pixels: tf.Tensor) -> tf.Tensor:
        """The window's pixels as they leave this step, of fixed height and width."""
        return tf.ensure_shape(pixels, [*self.size, None])

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        pixels = require_image(x, self.field, self.name)
        return self.shaped(cut(pixels, self.window(tf.shape(pixels), key)))

    def _large_enough(self, shape: tf.Tensor) -> list[tf.Operation]:
        height, width = self.size
        told = (
            f"{self.name}: field {self.field} must be at least {height} x {width} pixels "
            "(height x width); it is"
        )
        known = None if tf.executing_eagerly() else tf.get_static_value(shape)
        if known is not None and (known[:2] < self.size).any():
            # Every sample has this shape, so it is the definition that is wrong.
            raise ConfigError(f"{told} {known[:2].tolist()}", stage=self.name)
        enough = tf.reduce_all(shape[:2] >= self.size)
        return require_at_run_time(enough, told, shape[:2])


class CenterCrop(Crop):
    """The middle `size` [height, width]; where it cannot be exact, one pixel up and left."""

    name: ClassVar[str] = "center_crop"

    @override
    def window(self, shape: tf.Tensor, key: Key) -> Window:
        with tf.control_dependencies(self._large_enough(shape)):
            return tf.concat([(shape[:2] - self.size) // 2, self.size], 0)


class RandomCrop(Crop):
    """A window of `size` [height, width], every place alike: `tf.image.stateless_random_crop`."""

    name: ClassVar[str] = "random_crop"
    draws: ClassVar[bool] = True

    @override
    def window(self, shape: tf.Tensor, key: Key) -> Window:
        # The window that tf.image.stateless_random_crop takes for this key: it draws an offset
        # for each of the three dimensions, the channels' always coming out as 0.
        with tf.control_dependencies(self._large_enough(shape)):
            places = shape[:2] - self.size + 1
        drawn = tf.random.stateless_uniform([3], key, maxval=_INT32_MAX, dtype=tf.int32)
        return tf.concat([drawn[:2] % places, self.size], 0)


class RandomResizedCrop(Crop):
    """A window of random area and aspect, resized to `size` [height, width].

    The window is `tf.image.stateless_sample_distorted_bounding_box`'s over the whole image:
    `scale` is the range of its share of the image's area, `ratio` of its width over its height.
    The data type is kept, as `resize` keeps it.
    """

    name: ClassVar[str] = "random_resized_crop"
    draws: ClassVar[bool] = True

    scale: Range = (0.08, 1.0)
    ratio: Range = (0.75, 1.3333)
    method: Method = "bilinear"

    @field_validator("scale")
    @classmethod
    def _shares(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1] <= 1:
            raise ValueError("should be [least, most] with 0 < least <= most <= 1")
        return value

    @field_validator("ratio")
    @classmethod
    def _ratios(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("should be [least, most] with 0 < least <= most")
        return value

    @override
    def window(self, shape: tf.Tensor, key: Key) -> Window:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            shape,
            bounding_boxes=[[[0.0, 0.0, 1.0, 1.0]]],
            seed=key,
            # The box is the whole image, so `scale` alone says how much of it is covered.
            min_object_covered=0.0,
            aspect_ratio_range=self.ratio,
            area_range=self.scale,
        )
        return tf.concat([begin[:2], size[:2]], 0)

    @override
    def shaped(self, pixels: tf.Tensor) -> tf.Tensor:
        return resize(pixels, self.size, self.method)


def cut(pixels: tf.Tensor, window: Window) -> tf.Tensor:
    """The pixels of the window, [height, width, channels]."""
    y, x, height, width = tf.unstack(window)
    part = pixels[y : y + height, x : x + width]
    return tf.ensure_shape(part, [None, None, pixels.shape[2]])
