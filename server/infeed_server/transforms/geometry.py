"""Crops and flips of images."""

from __future__ import annotations

import math
from typing import ClassVar, TypeAlias

import tensorflow as tf
from pydantic import field_validator
from typing_extensions import override

from infeed_server.transforms.base import Drawn, Key
from infeed_server.transforms.movement import Geometry, RandomGeometry
from infeed_server.transforms.option_types import Range, Size
from infeed_server.transforms.sizes import ResizeMethod, require_size, resize

Window: TypeAlias = "tf.Tensor"
"""int32[4]: y, x, height, width, in pixels."""

_WINDOW = ("y", "x", "height", "width")

_INT32_MAX = (1 << 31) - 1


class Crop(Geometry):
    """A window of the image, which a subclass chooses from the image's shape and the key alone.

    So a JPEG can be cropped while it is decoded: see `pipeline.picture_steps`.
    """

    size: Size
    """Size of the result, in pixels."""

    def choose_window(self, shape: tf.Tensor, key: Key) -> Window:
        """Returns the window in an image of this shape, int32[3]. Fails if the image is too
        small."""
        with tf.control_dependencies(require_size(self, self.size, shape)):
            return self.place_window(shape[:2], self.draw_numbers(key))

    def draw_numbers(self, key: Key) -> tf.Tensor:  # noqa: ARG002 - of those that are random
        """Returns the random numbers that decide the window in an image of any size."""
        return tf.zeros([0])

    def place_window(self, image: tf.Tensor, numbers: tf.Tensor) -> Window:
        """Returns the windows in images of these sizes, int32[..., 2], from each image's random
        numbers. The window of an image that is too small exceeds it."""
        raise NotImplementedError(type(self).__name__)

    def to_output(self, pixels: tf.Tensor, *, nearest: bool = False) -> tf.Tensor:  # noqa: ARG002
        """Returns the window's pixels as the result, with static height and width."""
        return tf.ensure_shape(pixels, [*self.size, None])

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        window = self.choose_window(shape, key)
        return dict(zip(_WINDOW, tf.unstack(window), strict=True))

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        window = tf.stack([drawn[name] for name in _WINDOW])
        return self.to_output(crop_to_window(pixels, window), nearest=nearest)

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        begin, size = (
            tf.cast(tf.stack([drawn[name] for name in names]), tf.float32)
            for names in (("x", "y"), ("width", "height"))
        )
        return (points - begin) * (self.size[::-1] / size)

    @override
    def result_size(self, image: tf.Tensor, drawn: Drawn) -> tf.Tensor:
        return tf.zeros_like(image) + self.size


class CenterCrop(Crop):
    """Crops the centre; an odd remainder moves it one pixel up or left.

    Result: type kept; `size`.
    """

    @override
    def place_window(self, image: tf.Tensor, numbers: tf.Tensor) -> Window:
        return tf.concat([(image - self.size) // 2, tf.zeros_like(image) + self.size], -1)


class RandomCrop(RandomGeometry, Crop):
    """Crops a window at a uniformly random position.

    As `tf.image.stateless_random_crop`.

    Result: type kept; `size`.
    """

    @override
    def draw_numbers(self, key: Key) -> tf.Tensor:
        # As tf.image.stateless_random_crop with this key. It draws an offset for each of the three
        # dimensions; the offset of the channels is always 0.
        return tf.random.stateless_uniform([3], key, maxval=_INT32_MAX, dtype=tf.int32)[:2]

    @override
    def place_window(self, image: tf.Tensor, numbers: tf.Tensor) -> Window:
        offset_counts = tf.maximum(image - self.size + 1, 1)
        return tf.concat([numbers % offset_counts, tf.zeros_like(image) + self.size], -1)


def crop_to_window(pixels: tf.Tensor, window: Window) -> tf.Tensor:
    """Returns the pixels of the window, [height, width, channels]."""
    y, x, height, width = tf.unstack(window)
    part = pixels[y : y + height, x : x + width]
    return tf.ensure_shape(part, [None, None, pixels.shape[2]])


class _RandomFlip(RandomGeometry):
    """A flip along an axis. Draws and pixels are bit-identical to those of TensorFlow's
    function."""

    axis: ClassVar[int]

    def is_flipped(self, key: Key) -> tf.Tensor:
        return tf.random.stateless_uniform([], key) < 0.5

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        return {"flipped": self.is_flipped(key)}

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        flipped = drawn["flipped"]
        result = tf.cond(flipped, lambda: tf.reverse(pixels, [self.axis]), lambda: pixels)
        return tf.ensure_shape(result, pixels.shape)

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        length = tf.cast(shape[self.axis], tf.float32)
        is_moved = drawn["flipped"] & tf.constant([self.axis == 1, self.axis == 0])
        return tf.where(is_moved, length - points, points)


class RandomFlipLeftRight(_RandomFlip):
    """Flips the image horizontally with probability 0.5.

    As `tf.image.stateless_random_flip_left_right`.

    Result: type and shape kept.
    """

    axis: ClassVar[int] = 1


class RandomFlipUpDown(_RandomFlip):
    """Flips the image vertically with probability 0.5.

    As `tf.image.stateless_random_flip_up_down`.

    Result: type and shape kept.
    """

    axis: ClassVar[int] = 0


_TRIES = 10
"""Number of windows drawn; the first that fits into the image is used."""


class RandomResizedCrop(RandomGeometry, Crop):
    """Crops a window of random area and aspect ratio, and resizes it.

    As in torchvision, the window's share of the area is uniform in `scale`, the logarithm of its
    width over its height is uniform in the logarithms of `ratio`, and each position in the image is
    equally likely. If none of ten windows fits, the crop uses the largest central one whose ratio
    is in `ratio`.

    Result: type kept; `size`.
    """

    scale: Range = (0.08, 1.0)
    """Range of the window's share of the image's area."""
    ratio: Range = (0.75, 1.3333333333333333)
    """Range of the window's width over its height."""
    method: ResizeMethod = "bilinear"
    """Interpolation, as in `resize`."""

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
        return self.place_window(shape[:2], self.draw_numbers(key))  # it fits in any image

    @override
    def draw_numbers(self, key: Key) -> tf.Tensor:
        # float64: any offset in an image of any size is equally likely, to 50 bits. These are the
        # bits of `tf.random.stateless_uniform`; each operation adds to the time of a small image.
        shape = [2 * _TRIES + 2]
        drawn = tf.raw_ops.StatelessRandomUniform(shape=shape, seed=key, dtype=tf.float64)
        share, aspect, position = tf.split(drawn, [_TRIES, _TRIES, 2])
        low, high = (math.log(ratio) / 2 for ratio in self.ratio)
        # One image at a time: TensorFlow's `exp` of many values can have other bits.
        return tf.concat([share, tf.exp(low + (high - low) * aspect), position], 0)

    @override
    def place_window(self, image: tf.Tensor, numbers: tf.Tensor) -> Window:
        image = tf.cast(image, tf.float64)
        share, root_ratio, position = tf.split(numbers, [_TRIES, _TRIES, 2], axis=-1)
        sizes = self._draw_sizes(image, share, root_ratio)
        # The central window is the last, and always fits.
        sizes = tf.concat([sizes, self._central_size(image)[..., tf.newaxis, :]], -2)
        fits = (sizes >= 1) & (sizes <= image[..., tf.newaxis, :])
        chosen = tf.argmax(tf.reduce_all(fits, axis=-1), axis=-1)
        size = tf.gather(sizes, chosen, axis=-2, batch_dims=image.shape.rank - 1)
        space = image - size
        is_drawn = chosen[..., tf.newaxis] < _TRIES
        offset = tf.where(is_drawn, position * (space + 1), space / 2)
        return tf.cast(tf.concat([tf.floor(offset), size], -1), tf.int32)

    def _draw_sizes(self, image: tf.Tensor, share: tf.Tensor, root_ratio: tf.Tensor) -> tf.Tensor:
        """Returns whole heights and widths, float64[..., n, 2], for draws in [0, 1) and roots of
        ratios."""
        least, most = self.scale
        area = tf.reduce_prod(image, axis=-1, keepdims=True)
        root = tf.sqrt(area * (least + (most - least) * share))
        return tf.round(tf.stack([root / root_ratio, root * root_ratio], axis=-1))

    def _central_size(self, image: tf.Tensor) -> tf.Tensor:
        """Returns height and width of the largest window with an allowed ratio."""
        low, high = self.ratio
        # The height for the width and the least ratio; the width for the height and the greatest.
        opposite = tf.reverse(image, [-1]) * [1 / low, high]
        return tf.maximum(tf.minimum(image, tf.round(opposite)), 1)

    @override
    def to_output(self, pixels: tf.Tensor, *, nearest: bool = False) -> tf.Tensor:
        return resize(pixels, self.size, "nearest" if nearest else self.method)
