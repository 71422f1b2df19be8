"""Decoding options: what the decoders of all image formats need of `decode_image`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from infeed_server.transforms.field_checks import require_at_run_time

Check: TypeAlias = "tuple[tf.Tensor, str, tf.Tensor]"
"""A condition, the problem if it does not hold, and the number that the message ends with."""


@dataclass(frozen=True)
class Decoding:
    """The options of a `decode_image`; see there.

    `subject` begins the messages: the transform and its field. `oriented` is whether a JPEG is
    turned upright as its EXIF states.
    """

    subject: str
    channels: int
    dtype: str
    max_pixels: int
    oriented: bool

    def require(
        self, condition: tf.Tensor | bool, problem: str, value: tf.Tensor
    ) -> list[tf.Operation]:
        """Fails the sample unless the condition holds. Returns control dependencies."""
        return require_at_run_time(condition, f"{self.subject} {problem}", value)

    def require_all(self, checks: Sequence[tuple[tf.Tensor, str, tf.Tensor]]) -> list[tf.Operation]:
        """Fails the sample for the first of (condition, problem, number) that does not hold.

        Returns control dependencies.
        """
        if tf.executing_eagerly():
            return [done for check in checks for done in self.require(*check)]
        conditions, problems, values = zip(*checks, strict=True)
        first = tf.argmin(tf.cast(tf.stack(conditions), tf.int32))
        message = tf.gather([f"{self.subject} {problem}" for problem in problems], first)
        value = tf.gather(tf.stack([tf.cast(value, tf.int64) for value in values]), first)
        holds = tf.reduce_all(tf.stack(conditions))
        return [tf.raw_ops.Assert(condition=holds, data=[message, value])]

    def require_pixels(self, height: tf.Tensor, width: tf.Tensor) -> list[tf.Operation]:
        """Fails the sample if it has more pixels than allowed. Returns control dependencies.

        To be called with the size in the file's header, before memory is taken for the pixels.
        """
        return self.require(*self.pixel_check(height, width))

    def pixel_check(self, height: tf.Tensor, width: tf.Tensor) -> Check:
        count = tf.cast(height, tf.int64) * tf.cast(width, tf.int64)
        problem = f"must have at most {self.max_pixels} pixels (max_pixels); it has"
        return count <= self.max_pixels, problem, count
