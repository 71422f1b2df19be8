"""Perspective of pictures, by four drawn corners."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import tensorflow as tf
from pydantic import Field
from typing_extensions import override

from infeed_augment.warp import Interpolation, Matrix, RandomWarp, centre, product
from infeed_server.transforms.base import Drawn, Key

_CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
"""x and y as shares of width and height."""

_MIN_TURN = 0.05
"""Cross product of two sides; 1 in the original picture, at least 0.07 at a distortion of 0.6."""

_HORIZON = 1e-3
"""Minimum distance of a point; that of the picture's upper left corner is 1."""


class RandomPerspective(RandomWarp):
    """Moves each corner of the picture towards its centre by a drawn amount.

    If the corners would fold the picture, which is possible with a distortion above 0.6, they move
    half as far.

    Result: type and shape kept.
    """

    distortion: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Largest movement of a corner, as a share of half the width and half the height."""
    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that a picture is changed."""
    interpolation: Interpolation = "bilinear"
    """How a picture's values are interpolated; a mask uses the nearest values."""

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        numbers = tf.random.stateless_uniform([9], key)
        is_moved = numbers[8] < self.probability
        corners = tf.constant(_CORNERS)
        way = self.distortion / 2 * tf.reshape(numbers[:8], [4, 2]) * tf.cast(is_moved, tf.float32)
        size = tf.cast(shape[1::-1], tf.float32)
        to_shares = tf.linalg.diag(tf.concat([1 / size, [1.0]], 0))
        to_pixels = tf.linalg.diag(tf.concat([size, [1.0]], 0))
        moved = corners + way * (1 - 2 * corners)
        moved = tf.where(_is_convex(moved), moved, (corners + moved) / 2)
        matrix = product(to_pixels, tf.linalg.inv(_square_to(moved)), to_shares)
        drawn = {f"corner{n}.{axis}": moved[n, i] for n in range(4) for i, axis in enumerate("xy")}
        return {"moved": is_moved, **drawn, "matrix": tf.where(is_moved, matrix, tf.eye(3))}

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        warped = partial(super().apply_pixels, pixels, drawn, nearest=nearest, fill=fill)
        return tf.cond(drawn["moved"], warped, lambda: tf.identity(pixels))

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        """Moves points. A point beyond the horizon, which is outside the picture, moves like the
        last point before the horizon on the line to the centre: far away on the same side."""
        middle = centre(shape)
        row = tf.linalg.inv(drawn["matrix"])[2]
        here, there = (
            tf.reduce_sum(row[:2] * xy, -1, keepdims=True) + row[2] for xy in (middle, points)
        )
        share = tf.where(there < _HORIZON, (here - _HORIZON) / (here - there), 1.0)
        return super().apply_points(middle + share * (points - middle), drawn, shape)


def _is_convex(corners: tf.Tensor) -> tf.Tensor:
    """Returns whether each of the corners, float32[4, 2], turns right by more than a little."""
    before, behind = corners - tf.roll(corners, 1, 0), tf.roll(corners, -1, 0) - corners
    turns = before[:, 0] * behind[:, 1] - before[:, 1] * behind[:, 0]
    return tf.reduce_all(turns > _MIN_TURN)


def _square_to(corners: tf.Tensor) -> Matrix:
    """Returns the matrix from the unit square to four corners, float32[4, 2]."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = (tf.unstack(p) for p in tf.unstack(corners))
    dx1, dx2, dx3 = x1 - x2, x3 - x2, x0 - x1 + x2 - x3
    dy1, dy2, dy3 = y1 - y2, y3 - y2, y0 - y1 + y2 - y3
    area = dx1 * dy2 - dx2 * dy1
    g, h = (dx3 * dy2 - dx2 * dy3) / area, (dx1 * dy3 - dx3 * dy1) / area
    rows = [
        [x1 - x0 + g * x1, x3 - x0 + h * x3, x0],
        [y1 - y0 + g * y1, y3 - y0 + h * y3, y0],
        [g, h, tf.ones([])],
    ]
    return tf.stack([tf.stack(row) for row in rows])
