"""Enhancements: transforms that blend a picture with a plain one by a factor, like Pillow's
`ImageEnhance`. They are sharpness, grey, and changes of colour in a drawn order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeAlias

import tensorflow as tf
from pydantic import BeforeValidator, Field
from typing_extensions import override

from infeed_augment.photometric import Photometric, blend, to_grey
from infeed_server.config.model import as_tuple
from infeed_server.transforms.base import Drawn, Key, RandomTransform
from infeed_server.transforms.option_types import NonNegative

Change: TypeAlias = Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]
"""A function from pixels and a number to pixels."""


class Grayscale(Photometric):
    """Removes the colour from a picture and keeps its channels.

    Result: uint8; shape kept.
    """

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return tf.tile(tf.cast(to_grey(pixels), tf.uint8), [1, 1, pixels.shape[2]])


class Sharpness(Photometric):
    """Sharpens or smooths a picture by blending it with a smooth one.

    Result: uint8; shape kept.
    """

    factor: NonNegative
    """0 is smooth, 1 the unchanged picture, and 2 sharper."""

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        return adjust_sharpness(pixels, tf.constant(self.factor))


def _as_range(value: object) -> object:
    """Returns `0.4` as the factors from 0.6 to 1.4, like torchvision."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (max(0.0, 1.0 - value), 1.0 + value)
    return as_tuple(value)


Factors = Annotated[tuple[NonNegative, NonNegative], BeforeValidator(_as_range)]
"""A number `n` for factors from 1 - n to 1 + n, or [lower, upper]."""


class RandomColorJitter(RandomTransform, Photometric):
    """Changes brightness, contrast, saturation and hue, each by a drawn amount, in a drawn order.

    Result: uint8; shape kept.
    """

    brightness: Factors = (1.0, 1.0)
    """Factors for the values: `n` for 1 - n to 1 + n, or [lower, upper]."""
    contrast: Factors = (1.0, 1.0)
    """Factors for the distance to the mean of the grey picture, given in the same way."""
    saturation: Factors = (1.0, 1.0)
    """Factors for the distance to the grey picture, given in the same way."""
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Largest shift of the hue, as a share of the full circle."""

    @property
    def _changes(self) -> dict[str, tuple[Change, float, float]]:
        """The changes that have an effect, each with the range of its number."""
        return {
            name: (function, *limits)
            for name, function, limits, plain in (
                ("brightness", adjust_brightness, self.brightness, 1.0),
                ("contrast", adjust_contrast, self.contrast, 1.0),
                ("saturation", adjust_saturation, self.saturation, 1.0),
                ("hue", adjust_hue, (-self.hue, self.hue), 0.0),
            )
            if set(limits) != {plain}
        }

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        return self._draw(key)

    def _draw(self, key: Key) -> Drawn:
        """Returns the number and the place of each change."""
        numbers = tf.random.stateless_uniform([8], key)
        drawn: Drawn = {}
        places = tf.argsort(tf.argsort(numbers[4 : 4 + len(self._changes)]))
        for number, (name, (_, low, high)) in enumerate(self._changes.items()):
            drawn[name] = low + (high - low) * numbers[number]
            drawn[f"{name}_place"] = places[number]
        return drawn

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        drawn, changes = self._draw(key), self._changes

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]  # traced once for all
        def change_one(number: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
            choices = [partial(changes[name][0], pixels, drawn[name]) for name in changes]
            return tf.switch_case(number, choices)

        if changes:
            for number in tf.unstack(tf.argsort([drawn[f"{name}_place"] for name in changes])):
                pixels = tf.ensure_shape(change_one(number, pixels), pixels.shape)
        return pixels


def adjust_brightness(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    return blend(tf.constant(0.0), pixels, factor)


def adjust_contrast(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with the rounded mean of the grey picture."""
    grey = to_grey(pixels)
    mean = tf.reduce_sum(tf.cast(grey, tf.int64)) / tf.size(grey, tf.int64)
    return blend(tf.floor(mean + 0.5), pixels, factor)


def adjust_saturation(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    # Tiled to the picture's shape, because a broadcast over channels takes longer.
    grey = tf.tile(tf.cast(to_grey(pixels), tf.float32), [1, 1, pixels.shape[2]])
    return blend(grey, pixels, factor)


def adjust_hue(pixels: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """Shifts the hue like `tf.image.adjust_hue`. A grey picture has none."""
    return tf.image.adjust_hue(pixels, shift) if pixels.shape[2] == 3 else pixels


def adjust_sharpness(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends each pixel with the mean of itself, weighted by five, and its eight neighbours. The
    border has no such mean and is kept; a picture one or two pixels high or wide is all border."""
    x = tf.cast(pixels, tf.int32)
    rows = x[:-2] + x[1:-1] + x[2:]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * x[1:-1, 1:-1]
    inner = blend((2 * sums + 13) // 26, pixels[1:-1, 1:-1], factor)
    middle = tf.concat([pixels[1:-1, :1], inner, pixels[1:-1, 1:][:, -1:]], 1)
    return tf.concat([pixels[:1], middle, pixels[1:][-1:]], 0)  # a single row comes only once
