"""Random erasing: a covered rectangle of the picture."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import tensorflow as tf
from pydantic import Field, model_validator
from typing_extensions import Self, override

from infeed.shared import spec
from infeed.shared.tensorflow.finish import noise
from infeed_augment.photometric import Photometric, require_uint8
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Drawn, Key, RandomTransform
from infeed_server.transforms.option_types import Range

_TRIES = 10

Value = Annotated[int, Field(ge=0, le=255)]


class RandomErasing(RandomTransform, Photometric):
    """Covers a rectangle of drawn area, ratio and place; nothing if none of ten draws fits.

    Result: uint8; shape kept.
    """

    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that a picture is changed."""
    scale: Range = (0.02, 0.33)
    """Range of the rectangle's share of the picture's area."""
    ratio: Range = (0.3, 3.3)
    """Range of the rectangle's ratio of height to width."""
    value: Value | None = 0
    """The covering value; `null` for noise, drawn for each value."""
    at: Literal["server", "trainer"] = "server"
    """Where the rectangle is covered, with the same bits. At the `trainer`, the server only makes
    the draws, and only other steps of the trainer can follow."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for option, limit in (("scale", 1.0), ("ratio", math.inf)):
            low, high = getattr(self, option)
            if not 0 < low <= high <= limit:
                raise ValueError(f"{option}: should be [min, max] with 0 < min <= max <= {limit:g}")
        return self

    @override
    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:
        """Returns the rectangle, with height and width 0 if nothing is covered, and the seed of the
        noise."""
        size = tf.cast(tf.shape(x)[:2], tf.float32)
        numbers = tf.random.stateless_uniform([3 + 2 * _TRIES], key)
        share, aspect, place, chance = tf.split(numbers, [_TRIES, _TRIES, 2, 1])
        area = tf.reduce_prod(size) * _between(self.scale, share)
        low, high = (math.log(ratio) for ratio in self.ratio)
        root = tf.exp(_between((low, high), aspect) / 2)
        sizes = tf.round(tf.sqrt(area)[:, tf.newaxis] * tf.stack([root, 1 / root], 1))
        fits = tf.reduce_all(sizes < size, axis=1)
        is_covered = tf.reduce_any(fits) & (chance[0] < self.probability)
        chosen = sizes[tf.argmax(fits)] * tf.cast(is_covered, tf.float32)
        begin = tf.floor(place * (size - chosen + 1))
        window = tf.unstack(tf.cast(tf.concat([begin, chosen], 0), tf.int32))
        drawn = dict(zip(("y", "x", "height", "width"), window, strict=True))
        if self.value is None:
            # Noise needs its own key, because the numbers of `key` decided the place.
            noise_key = tf.random.experimental.stateless_fold_in(key, 0)
            drawn["seed"] = tf.random.stateless_uniform([], noise_key, None, None, tf.int32)
        return drawn

    @property
    def _draws(self) -> str:
        return f"{self.field}.{self.draw_name}"

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        if self.at == "server":
            return super().apply(sample, key)
        drawn = self.draw_field(require_uint8(self.get_field(sample, self.field), self), key)
        end = (drawn["y"] + drawn["height"], drawn["x"] + drawn["width"])
        seed = drawn.get("seed", tf.constant(0))
        return {**sample, self._draws: tf.stack([drawn["y"], drawn["x"], *end, seed])}

    @override
    def fields(self) -> set[str] | None:
        return {self.field} | ({self._draws} if self.at == "trainer" else set())

    @override
    def finish_transform(self) -> spec.Erase | None:
        return spec.Erase(self.field, self._draws, self.value) if self.at == "trainer" else None

    @override
    def change(self, pixels: tf.Tensor, key: Key) -> tf.Tensor:
        drawn = self.draw_field(pixels, key)
        top, left = drawn["y"], drawn["x"]
        bottom, right = top + drawn["height"], left + drawn["width"]
        if self.value is None:
            numbers = tf.reshape(tf.range(tf.size(pixels)), tf.shape(pixels))
            cover = noise(numbers[top:bottom, left:right], drawn["seed"])
        else:
            size = tf.stack([drawn["height"], drawn["width"], tf.shape(pixels)[2]])
            cover = tf.fill(size, tf.constant(self.value, tf.uint8))
        middle = pixels[top:bottom]
        row = tf.concat([middle[:, :left], cover, middle[:, right:]], 1)
        return tf.concat([pixels[:top], row, pixels[bottom:]], 0)


def _between(limits: tuple[float, float], share: tf.Tensor) -> tf.Tensor:
    return limits[0] + (limits[1] - limits[0]) * share
