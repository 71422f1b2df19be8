"""Flips."""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import FieldTransform, Key
from infeed_server.transforms.checks import require_image


class RandomFlipLeftRight(FieldTransform):
    """Mirrors every second image, on average: `tf.image.stateless_random_flip_left_right`."""

    name: ClassVar[str] = "random_flip_left_right"
    draws: ClassVar[bool] = True

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        pixels = require_image(x, self.field, self.name)
        return tf.image.stateless_random_flip_left_right(pixels, key)


class RandomFlipUpDown(FieldTransform):
    """Turns every second image over, on average: `tf.image.stateless_random_flip_up_down`."""

    name: ClassVar[str] = "random_flip_up_down"
    draws: ClassVar[bool] = True

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        pixels = require_image(x, self.field, self.name)
        return tf.image.stateless_random_flip_up_down(pixels, key)
