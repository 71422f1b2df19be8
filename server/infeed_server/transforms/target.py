"""Target of a picture: a field that shows something of it, such as a mask; each geometric transform
moves both by one draw."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.config.model import Definition
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Drawn, FieldName, describe_tensor, require_at_run_time
from infeed_server.transforms.movement import Geometry
from infeed_server.transforms.option_types import Finite

_MAX_FILL = 2.0**24
"""Larger pixel values would be rounded: the operation that moves pixels computes in float32."""


class Moved(NamedTuple):
    """A step that has moved a picture, what it drew, and the picture's size before and after, as
    int32[2] of height and width. A picture that never moves has no step; one that is not decoded
    has no size."""

    step: Geometry | None
    drawn: Drawn
    before: tf.Tensor | None
    after: tf.Tensor | None

    def points(self, points: tf.Tensor) -> tf.Tensor:
        if self.step is None:
            return points
        return self.step.apply_points(points, self.drawn, self.before)


class Target(Definition):
    """What a field shows of a picture."""

    of: FieldName = "image"
    """The picture's field."""

    def fields(self, name: str) -> set[str]:
        """Returns the fields that it changes."""
        return {name}

    @abstractmethod
    def move(self, sample: Sample, name: str, moved: Moved) -> Sample:
        """Moves the field as its picture was moved."""

    def finish(self, sample: Sample, name: str) -> Sample:  # noqa: ARG002 - of those with rows
        """Gives the field its shape in a batch, after the picture's last move."""
        return sample


class Mask(Target):
    """A mask of the picture's height and width, `[height, width]` or with channels. Each pixel
    takes the nearest value, so that no new class appears between two."""

    fill: Finite = 0.0
    """Value of the pixels around the picture, such as 255 if the loss ignores it."""

    def move(self, sample: Sample, name: str, moved: Moved) -> Sample:
        mask = sample[name]
        if moved.step is None:
            return sample
        if mask.dtype == tf.string:
            raise ConfigError(
                f"targets.{name}: the mask is encoded where {self.of!r} moves; put decode_image "
                f"with channels: 1 for {name!r} before it"
            )
        if mask.shape.rank not in (2, 3):
            raise wrong_shape(name, mask, "[height, width] or [height, width, channels]")
        self._check_fill(name, mask.dtype)
        size = tf.shape(mask)[:2]
        message = f"targets.{name}: height and width of the mask and of {self.of} differ:"
        fits = require_at_run_time(
            tf.reduce_all(size == moved.before), message, tf.concat([size, moved.before], 0)
        )
        with tf.control_dependencies(fits):
            pixels = tf.identity(mask) if mask.shape.rank == 3 else mask[..., tf.newaxis]
        result = moved.step.apply_pixels(pixels, moved.drawn, nearest=True, fill=self.fill)
        return {**sample, name: result if mask.shape.rank == 3 else result[..., 0]}

    def _check_fill(self, name: str, kind: tf.DType) -> None:
        problem = ""
        if kind.is_integer and (self.fill % 1 or not kind.min <= self.fill <= kind.max):
            problem = f"is not a {kind.name}, the mask's type"
        elif abs(self.fill) > _MAX_FILL:
            problem = f"is above {_MAX_FILL:.0f}, up to which float32 is exact"
        if problem:
            raise ConfigError(f"targets.{name}.mask.fill: {self.fill:.10g} {problem}")


def wrong_shape(name: str, x: tf.Tensor, shape: str) -> ConfigError:
    return ConfigError(f"targets.{name}: the field holds {describe_tensor(x)}, not {shape}")
