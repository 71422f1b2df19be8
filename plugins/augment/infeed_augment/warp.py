"""Warps: the base class of transforms that move pixels and the points of targets by a matrix."""

from __future__ import annotations

import math
from functools import reduce
from typing import Annotated, Literal, TypeAlias

import tensorflow as tf
from pydantic import Field
from typing_extensions import override

from infeed_server.transforms.base import Drawn
from infeed_server.transforms.movement import RandomGeometry

Matrix: TypeAlias = "tf.Tensor"
"""A float32[3, 3] from homogeneous coordinates of the result, x, y and 1, to the picture's. A pixel
extends from its number to the next."""

Interpolation = Literal["nearest", "bilinear"]

_TYPES = ("uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
"""Data types that TensorFlow's operation supports."""


class RandomWarp(RandomGeometry):
    """A transform by a matrix that a subclass draws as `matrix`."""

    interpolation: Interpolation = "nearest"
    """How a picture's values are interpolated; a mask uses the nearest values."""
    fill: Annotated[int, Field(ge=0, le=255)] = 0
    """Value of pixels from outside the picture."""

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        interpolation = "nearest" if nearest else self.interpolation
        return warp(pixels, drawn["matrix"], interpolation, self.fill if fill is None else fill)

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        return move_points(points, drawn["matrix"])


def warp(pixels: tf.Tensor, matrix: Matrix, interpolation: Interpolation, fill: float) -> tf.Tensor:
    """Returns the moved picture, in the same size."""
    shift = translation(tf.constant([0.5, 0.5]))
    # The operation's coordinates are those of pixel centres.
    of_numbers = product(tf.linalg.inv(shift), matrix, shift)
    coefficients = tf.reshape(of_numbers / of_numbers[2, 2], [9])[:8]
    # int64 has the same bits as uint64.
    other = tf.int64 if pixels.dtype in (tf.uint32, tf.uint64) else tf.int32
    kind = pixels.dtype if pixels.dtype.name in _TYPES else other
    if interpolation == "bilinear" and kind.is_integer:
        kind = tf.float32  # integers would be truncated
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(pixels, kind)[tf.newaxis],
        transforms=coefficients[tf.newaxis],
        output_shape=tf.shape(pixels)[:2],
        fill_value=fill,
        interpolation=interpolation.upper(),
        fill_mode="CONSTANT",
    )[0]
    if kind.is_floating and pixels.dtype.is_integer:
        warped = tf.round(warped)
    return tf.ensure_shape(tf.cast(warped, pixels.dtype), pixels.shape)


def move_points(points: tf.Tensor, matrix: Matrix) -> tf.Tensor:
    """Returns the places in the result of points of the picture, [..., 2]."""
    homogeneous = tf.concat([points, tf.ones_like(points[..., :1])], -1)
    moved = tf.reduce_sum(tf.linalg.inv(matrix) * homogeneous[..., tf.newaxis, :], -1)
    return moved[..., :2] / moved[..., 2:]


def centre(shape: tf.Tensor) -> tf.Tensor:
    """Returns x and y of the centre of a picture of this shape."""
    return tf.cast(shape[1::-1], tf.float32) / 2


def translation(by: tf.Tensor) -> Matrix:
    """Returns the matrix that adds x and y."""
    one, zero = tf.ones([]), tf.zeros([])
    return _matrix([one, zero, by[0]], [zero, one, by[1]])


def rotation(degrees: tf.Tensor) -> Matrix:
    """Returns the matrix that rotates a picture about the origin, counter-clockwise."""
    angle = degrees * (math.pi / 180)
    cosine, sine, zero = tf.cos(angle), tf.sin(angle), tf.zeros([])
    return _matrix([cosine, -sine, zero], [sine, cosine, zero])


def shear(x: tf.Tensor, y: tf.Tensor) -> Matrix:
    """Returns the matrix that adds a share of the other coordinate to each coordinate."""
    one, zero = tf.ones([]), tf.zeros([])
    return _matrix([one, x, zero], [y, one, zero])


def about(point: tf.Tensor, matrix: Matrix) -> Matrix:
    """Returns the same matrix with another origin."""
    return product(translation(point), matrix, translation(-point))


def product(*matrices: Matrix) -> Matrix:
    """Returns the product of matrices."""
    # Without `@`, whose kernels differ in their bits.
    return reduce(lambda a, b: tf.reduce_sum(a[:, :, tf.newaxis] * b, 1), matrices)


def _matrix(*rows: list[tf.Tensor]) -> Matrix:
    return tf.stack([*(tf.stack(row) for row in rows), tf.constant([0.0, 0.0, 1.0])])
