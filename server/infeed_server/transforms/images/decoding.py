"""Decoding options: what the decoders of all image formats need of `decode_image`."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from infeed_server.transforms.field_checks import require_at_run_time


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

    def require_pixels(self, height: tf.Tensor, width: tf.Tensor) -> list[tf.Operation]:
        """Fails the sample if it has more pixels than allowed. Returns control dependencies.

        To be called with the size in the file's header, before memory is taken for the pixels.
        """
        count = tf.cast(height, tf.int64) * tf.cast(width, tf.int64)
        problem = f"must have at most {self.max_pixels} pixels (max_pixels); it has"
        return self.require(count <= self.max_pixels, problem, count)
