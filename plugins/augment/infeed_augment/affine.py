"""Rotation and affine transforms of pictures."""

from __future__ import annotations

import math
from typing import Annotated, Any

import tensorflow as tf
from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self, override

from infeed_augment.warp import RandomWarp, about, centre, product, rotation, shear, translation
from infeed_server.config.model import as_tuple
from infeed_server.transforms.base import Drawn, Key
from infeed_server.transforms.option_types import Finite, Range


def _as_degrees(value: Any) -> Any:
    """Returns `30` as the range from -30 to 30."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (-value, value) if is_number else as_tuple(value)


Degrees = Annotated[tuple[Finite, Finite], BeforeValidator(_as_degrees)]
"""A number `n` for -n to n, or [lower, upper]."""

Share = Annotated[float, Field(ge=0, le=1)]


class RandomRotation(RandomWarp):
    """Rotates the picture about its centre by a drawn angle, counter-clockwise.

    Result: type and shape kept.
    """

    degrees: Degrees
    """Range of the angle: `n` for -n to n, or [lower, upper]."""

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        angle = _draw(self.degrees, tf.random.stateless_uniform([], key))
        return {"angle": angle, "matrix": about(centre(shape), rotation(angle))}


class RandomAffine(RandomWarp):
    """Shears, scales, rotates and shifts the picture by drawn amounts, about its centre.

    Result: type and shape kept.
    """

    degrees: Degrees = (0.0, 0.0)
    """Range of the angle, clockwise: `n` for -n to n, or [lower, upper]."""
    translate: Annotated[tuple[Share, Share], BeforeValidator(as_tuple)] = (0.0, 0.0)
    """Largest shifts, as shares of width and height; they are rounded to whole pixels."""
    scale: Range = (1.0, 1.0)
    """Range of the scale factor."""
    shear_x: Degrees = (0.0, 0.0)
    """Range of the angle between vertical lines before and after, in degrees."""
    shear_y: Degrees = (0.0, 0.0)
    """Range of the angle between horizontal lines before and after, in degrees."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError("scale: should be [min, max] with 0 < min <= max")
        for option in ("shear_x", "shear_y"):
            if max(map(abs, getattr(self, option))) >= 90:
                raise ValueError(f"{option}: should be between -90 and 90 degrees")
        return self

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        turn, x, y, size, of_x, of_y = tf.unstack(tf.random.stateless_uniform([6], key))
        width_height = tf.cast(shape[1::-1], tf.float32)
        shift = tf.round((2 * tf.stack([x, y]) - 1) * self.translate * width_height)
        angle, factor = _draw(self.degrees, turn), _draw(self.scale, size)
        shears = _draw(self.shear_x, of_x), _draw(self.shear_y, of_y)
        x, y = (tf.tan(degrees * (math.pi / 180)) for degrees in shears)
        zero, inverse = tf.zeros([]), 1 / factor
        scaled = tf.linalg.diag(tf.stack([inverse, inverse, 1.0]))
        # torchvision's order: it shears the picture by x, then by y, then scales and rotates it.
        linear = product(shear(x, zero), shear(zero, y), scaled, rotation(-angle))
        middle = centre(shape)
        return {
            "angle": angle,
            "scale": factor,
            "x": shift[0],
            "y": shift[1],
            "shear_x": shears[0],
            "shear_y": shears[1],
            "matrix": product(about(middle, linear), translation(-shift)),
        }


def _draw(limits: tuple[float, float], share: tf.Tensor) -> tf.Tensor:
    return limits[0] + (limits[1] - limits[0]) * share
