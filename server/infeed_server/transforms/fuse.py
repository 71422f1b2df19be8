"""Decoding only the window that a crop keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf
from typing_extensions import override

from infeed_server.transforms.base import Key, Sample, Transform, take
from infeed_server.transforms.checks import require_bytes
from infeed_server.transforms.crop import Crop, cut
from infeed_server.transforms.decode import DecodeImage, decode

Step = tuple[int, Transform]
"""A transform and its ordinal, its place in the user's list."""


class DecodeAndCrop(Transform):
    """`decode_image` and a crop of its result in one; never written by users.

    A JPEG is decoded in the crop's window alone, which the crop chooses from the shape in the
    file's header. The window is the one that the two steps give for the same key. Its pixels are
    the same too, except that where a JPEG holds colour at half the resolution, the window's
    outermost pixels cannot be smoothed with neighbours that were not decoded.
    """

    name: ClassVar[str] = "decode_and_crop"

    decode: DecodeImage
    crop: Crop

    @property
    def random(self) -> bool:
        return self.crop.random

    @property
    def written(self) -> str:
        return f"{self.decode.name}+{self.crop.name}"

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        field, channels = self.decode.field, self.decode.channels
        instead = "an image is decoded once"
        contents = require_bytes(
            take(sample, field, self.decode.name), field, self.decode.name, instead=instead
        )

        def only_the_window() -> tf.Tensor:
            shape = tf.io.extract_jpeg_shape(contents)
            window = self.crop.window(tf.concat([shape[:2], [channels]], 0), key)
            return tf.io.decode_and_crop_jpeg(contents, window, channels=channels)

        def whole() -> tf.Tensor:
            pixels = decode(contents, channels)
            return cut(pixels, self.crop.window(tf.shape(pixels), key))

        pixels = tf.cond(tf.io.is_jpeg(contents), only_the_window, whole)
        pixels = tf.ensure_shape(pixels, [None, None, channels])
        return {**sample, field: self.crop.shaped(pixels)}

    @override
    def fields(self) -> set[str] | None:
        return {self.decode.field}

    @override
    def identity(self) -> dict[str, Any]:
        return {self.name: [self.decode.identity(), self.crop.identity()]}


def fuse(steps: Sequence[Step]) -> list[Step]:
    """The steps, each `decode_image` that a crop of its field directly follows joined with it.

    The joined step keeps the crop's ordinal, so it draws what the crop drew.
    """
    fused: list[Step] = []
    for ordinal, step in steps:
        before = fused[-1][1] if fused else None
        if isinstance(step, Crop) and isinstance(before, DecodeImage) and _fit(before, step):
            fused[-1] = (ordinal, DecodeAndCrop(decode=before, crop=step))
        else:
            fused.append((ordinal, step))
    return fused


def _fit(decode_image: DecodeImage, crop: Crop) -> bool:
    # A JPEG is decoded to 1 or 3 channels only; with 0 the crop could not know its shape.
    return decode_image.field == crop.field and decode_image.channels in (1, 3)
