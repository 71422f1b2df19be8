"""RandAugment and TrivialAugment: operations drawn for each picture, with torchvision's list and
magnitudes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, ClassVar

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import Self, override

from infeed_augment.enhance import (
    adjust_brightness,
    adjust_contrast,
    adjust_saturation,
    adjust_sharpness,
)
from infeed_augment.photometric import require_uint8
from infeed_augment.tones import autocontrast, equalize, posterize, solarize
from infeed_augment.warp import (
    Interpolation,
    Matrix,
    about,
    centre,
    move_points,
    product,
    rotation,
    shear,
    translation,
    warp,
)
from infeed_server.transforms.base import Drawn, Key
from infeed_server.transforms.movement import RandomGeometry

_GEOMETRIC = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_BLENDS = (adjust_brightness, adjust_saturation, adjust_contrast, adjust_sharpness)
_OPERATIONS = (
    *("identity", *_GEOMETRIC),
    *("brightness", "color", "contrast", "sharpness"),
    *("posterize", "solarize", "autocontrast", "equalize"),
)
"""In torchvision's order. The magnitudes of operations up to sharpness have a sign."""

_POSTERIZE = _OPERATIONS.index("posterize")

IDENTITY = _OPERATIONS.index("identity")
BLENDS = [_OPERATIONS.index(name) for name in ("brightness", "color", "contrast", "sharpness")]


class Policy(RandomGeometry):
    """Operations drawn one after another. Geometric ones also move masks and points."""

    limits: ClassVar[tuple[float, ...]]
    """Greatest magnitudes of shears, rotations and blends, and of the bits lost by posterize."""
    bits: ClassVar[int] = 8
    """Bits that posterize keeps at the lowest magnitude."""

    interpolation: Interpolation = "nearest"
    """How the values of a moved picture are interpolated; a mask uses the nearest values."""
    fill: Annotated[int, Field(ge=0, le=255)] = 0
    """Value of pixels from outside the picture."""

    @property
    def count(self) -> int:
        """The number of operations on each picture."""
        return 1

    @property
    def choices(self) -> Sequence[int]:
        """The numbers of the equally likely operations."""
        return range(len(_OPERATIONS))

    def level(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the share of the greatest magnitude for each number in [0, 1)."""
        raise NotImplementedError(type(self).__name__)

    def longest(self, size: tf.Tensor) -> tf.Tensor:
        """Returns the largest shifts along x and y, in pixels, for a picture of this size."""
        raise NotImplementedError(type(self).__name__)

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        numbers = tf.random.stateless_uniform([self.count, 3], key)
        places = tf.cast(numbers[:, 0] * len(self.choices), tf.int32)
        chosen = tf.gather([*self.choices], places)
        levels = self.level(numbers[:, 1])[:, tf.newaxis]
        of_shear, of_turn, of_blend, of_bits = self.limits
        along = self.longest(tf.cast(shape[1::-1], tf.float32))
        greatest = [of_turn, *[of_blend] * 4, of_bits, 255.0, 0.0, 0.0]
        scaled = levels * tf.concat([[0.0, of_shear, of_shear], along, greatest], 0)
        whole = tf.concat([tf.floor(scaled[:, 3:5]), self.bits - tf.round(scaled[:, 10:11])], 1)
        magnitudes = tf.concat(
            [
                *(scaled[:, :3], whole[:, :2], scaled[:, 5:10], whole[:, 2:]),
                *(tf.math.ceil(255 - scaled[:, 11:12]), scaled[:, 12:]),
            ],
            1,
        )
        found = tf.gather(magnitudes, chosen, axis=1, batch_dims=1)
        signed = tf.where((numbers[:, 2] < 0.5) & (chosen < _POSTERIZE), -found, found)
        drawn: Drawn = {}
        for n in range(self.count):
            drawn |= {f"operation{n}": chosen[n], f"magnitude{n}": signed[n]}
        return drawn

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        drawn = super().draw_field(x, key)
        names = tf.constant(_OPERATIONS)
        return {n: names[x] if n.startswith("operation") else x for n, x in drawn.items()}

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        operate = self.operation(drawn, nearest=nearest, fill=fill)
        for n in range(self.count):
            pixels = operate(pixels, n)
        return pixels

    def operation(
        self, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> Callable[[tf.Tensor, int], tf.Tensor]:
        """Returns a function that applies the drawn operation with a number to pixels."""
        interpolation = "nearest" if nearest else self.interpolation
        outside = float(self.fill if fill is None else fill)

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]  # traced once for all
        def change(pixels: tf.Tensor, chosen: tf.Tensor, magnitude: tf.Tensor) -> tf.Tensor:
            def moved() -> tf.Tensor:
                matrix = _matrix(tf.shape(pixels), chosen, magnitude)
                return warp(pixels, matrix, interpolation, outside)

            whole = tf.cast(magnitude, tf.int32)
            colours = [
                *(partial(blend, pixels, 1 + magnitude) for blend in _BLENDS),
                partial(posterize, pixels, whole),
                partial(solarize, pixels, whole),
                partial(autocontrast, pixels),
                partial(equalize, pixels),
            ]
            kept = [partial(tf.identity, pixels)]
            # A mask only moves, since it has no colours.
            last = kept * len(colours) if nearest else colours
            # A single branch moves, as each node of a branch takes time even if it is not chosen.
            branch = tf.where(chosen > 0, tf.maximum(chosen - len(_GEOMETRIC) + 1, 1), 0)
            return tf.switch_case(branch, [*kept, moved, *last])

        def operate(pixels: tf.Tensor, n: int) -> tf.Tensor:
            if not nearest:
                require_uint8(pixels, self)
            changed = change(pixels, drawn[f"operation{n}"], drawn[f"magnitude{n}"])
            return tf.ensure_shape(changed, pixels.shape)

        return operate

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        for n in range(self.count):
            matrix = _matrix(shape, drawn[f"operation{n}"], drawn[f"magnitude{n}"])
            points = move_points(points, matrix)
        return points


class RandAugment(Policy):
    """Applies a few of fourteen operations with equal strength to a picture: identity, shears,
    shifts, rotation, brightness, color, contrast, sharpness, posterize, solarize, autocontrast and
    equalize.

    Result: uint8; shape kept.

    Random: yes
    """

    limits: ClassVar[tuple[float, ...]] = (0.3, 30.0, 0.9, 4.0)

    operations: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of operations on each picture; one may be drawn again."""
    magnitude: Annotated[int, Field(ge=0)] = 9
    """Strength of all operations, from 0 to `bins` - 1."""
    bins: Annotated[int, Field(ge=2)] = 31
    """Number of strengths."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.magnitude >= self.bins:
            raise ValueError(f"magnitude: {self.magnitude} should be below bins, {self.bins}")
        return self

    @property
    @override
    def count(self) -> int:
        return self.operations

    @override
    def level(self, numbers: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(numbers), self.magnitude / (self.bins - 1))

    @override
    def longest(self, size: tf.Tensor) -> tf.Tensor:
        return size * (150 / 331)


class TrivialAugment(Policy):
    """Applies one of the operations of `rand_augment` to a picture, its strength drawn from wider
    ranges.

    Result: uint8; shape kept.

    Random: yes
    """

    limits: ClassVar[tuple[float, ...]] = (0.99, 135.0, 0.99, 6.0)

    bins: Annotated[int, Field(ge=2)] = 31
    """Number of equally likely strengths."""

    @override
    def level(self, numbers: tf.Tensor) -> tf.Tensor:
        # TensorFlow's optimizer would turn a division by a constant into a product.
        return tf.floor(numbers * self.bins) * (1 / (self.bins - 1))

    @override
    def longest(self, size: tf.Tensor) -> tf.Tensor:
        return tf.fill([2], 32.0)


def _matrix(shape: tf.Tensor, chosen: tf.Tensor, magnitude: tf.Tensor) -> Matrix:
    """Returns an operation's matrix for a picture of this shape; only geometric ones move it."""
    of_x, of_y, along_x, along_y, turn = (
        tf.where(chosen == _OPERATIONS.index(name), magnitude, 0.0) for name in _GEOMETRIC
    )
    turned = about(centre(shape), rotation(turn))
    return product(shear(of_x, of_y), translation(-tf.stack([along_x, along_y])), turned)
