"""Random changes of colour that keep the data type; floats are in [0, 1], as in `tf.image`."""

from __future__ import annotations

from typing import Annotated, ClassVar

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import Self, override

from infeed_server.transforms.base import (
    IMAGE_TYPES,
    Drawn,
    FieldTransform,
    Key,
    RandomTransform,
    describe_tensor,
    require_image,
    require_numbers,
    require_type,
)
from infeed_server.transforms.option_types import NonNegative

# The kernels of these functions do not support float16.
_COLOUR_TYPES = [name for name in IMAGE_TYPES if name != "float16"]


class _ColourTransform(RandomTransform, FieldTransform):
    """A function of `tf.image`, named like the transform, with a number drawn from a range. Pixels
    are bit-identical to TensorFlow's own function that draws."""

    amount: ClassVar[str] = "delta"
    """The name of the number."""

    @property
    def range(self) -> tuple[float, float]:
        """The lowest number and the exclusive upper limit."""
        raise NotImplementedError(type(self).__name__)

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        least, limit = self.range
        drawn = tf.random.stateless_uniform([], key, minval=least, maxval=limit)
        return {self.amount: drawn}

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        adjust = getattr(tf.image, self.name.replace("random", "adjust"))
        return adjust(self._require(x), self.draw_field(x, key)[self.amount])

    def _require(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the field if the function accepts it, by default as RGB."""
        pixels = require_image(x, self, _COLOUR_TYPES)
        if pixels.shape[2] not in (3, None):
            raise self.error(
                f"field {self.field!r} holds {describe_tensor(pixels)}; 3 channels "
                "are required (decode_image with channels: 3)"
            )
        return pixels


class _FactorTransform(_ColourTransform):
    """A transform with a factor drawn from [lower, upper)."""

    amount: ClassVar[str] = "factor"

    lower: NonNegative
    """Lowest factor."""
    upper: NonNegative
    """Upper limit of the factor, exclusive."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.upper <= self.lower:
            raise ValueError(f"upper ({self.upper}) should be greater than lower ({self.lower})")
        return self

    @property
    def range(self) -> tuple[float, float]:
        return self.lower, self.upper


class _DeltaTransform(_ColourTransform):
    """A transform with a change drawn from ±`max_delta`."""

    max_delta: NonNegative

    @property
    def range(self) -> tuple[float, float]:
        return -self.max_delta, self.max_delta


class RandomBrightness(_DeltaTransform):
    """Adds one drawn number, up to ±`max_delta`, to all values of a field of any shape.

    As `tf.image.stateless_random_brightness`.

    Result: type and shape kept.
    """

    max_delta: NonNegative
    """Largest change, as a share of the type's range."""

    @override
    def _require(self, x: tf.Tensor) -> tf.Tensor:
        values = require_numbers(x, self)
        require_type(values, self)
        return values


class RandomContrast(_FactorTransform):
    """Scales the distance to each channel's mean by a factor in [`lower`, `upper`).

    As `tf.image.stateless_random_contrast`.

    Result: type and shape kept.
    """

    @override
    def _require(self, x: tf.Tensor) -> tf.Tensor:
        return require_image(x, self, _COLOUR_TYPES)


class RandomSaturation(_FactorTransform):
    """Scales the saturation of an RGB image by a factor in [`lower`, `upper`).

    As `tf.image.stateless_random_saturation`.

    Result: type and shape kept.
    """


class RandomHue(_DeltaTransform):
    """Shifts the hue of an RGB image by up to ±`max_delta`.

    As `tf.image.stateless_random_hue`.

    Result: type and shape kept.
    """

    max_delta: Annotated[float, Field(ge=0, le=0.5)]
    """Largest shift, as a share of the full circle of hues."""
