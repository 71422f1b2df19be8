"""The fusion of `decode_image` with a crop: only the crop's window is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf
from typing_extensions import override

from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Key, Step, Transform, get_field
from infeed_server.transforms.decode import DecodeImage, decode_image
from infeed_server.transforms.field_checks import require_bytes
from infeed_server.transforms.geometry import Crop, crop_to_window
from infeed_server.transforms.image_header import jpeg_pixel_count, other_pixel_count


class DecodeAndCrop(Transform):
    """`decode_image` fused with a crop of its result. The planner inserts it; YAML has no name.

    Only the crop's window of a JPEG is decoded; the crop chooses it from the shape in the file's
    header. Window and pixels are those of the two separate steps with the same key, except where a
    JPEG stores colour at half the resolution: the window's outermost pixels cannot be smoothed
    with neighbours that were not decoded.
    """

    name: ClassVar[str] = "decode_and_crop"

    decode: DecodeImage
    crop: Crop

    @property
    def random(self) -> bool:
        return self.crop.random

    @property
    def display_name(self) -> str:
        return f"{self.decode.name}+{self.crop.name}"

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        field, channels, name = self.decode.field, self.decode.channels, self.decode.name
        contents = require_bytes(
            get_field(sample, field, name), field, name, instead="an image is decoded once"
        )

        def decode_window() -> tf.Tensor:
            shape = tf.io.extract_jpeg_shape(contents)
            window = self.crop.choose_window(tf.concat([shape[:2], [channels]], 0), key)
            with tf.control_dependencies(self.decode.require_pixels(jpeg_pixel_count(shape))):
                return tf.io.decode_and_crop_jpeg(contents, window, channels=channels)

        def decode_whole() -> tf.Tensor:
            with tf.control_dependencies(self.decode.require_pixels(other_pixel_count(contents))):
                pixels = decode_image(contents, channels)
            return crop_to_window(pixels, self.crop.choose_window(tf.shape(pixels), key))

        pixels = tf.cond(tf.io.is_jpeg(contents), decode_window, decode_whole)
        pixels = tf.ensure_shape(pixels, [None, None, channels])
        return {**sample, field: self.crop.to_output(pixels)}

    @override
    def fields(self) -> set[str] | None:
        return {self.decode.field}

    @override
    def identity(self) -> dict[str, Any]:
        return {self.name: [self.decode.identity(), self.crop.identity()]}


def fuse_decode_and_crop(steps: Sequence[Step]) -> list[Step]:
    """Fuses each `decode_image` with a crop of its field that directly follows.

    The fused step keeps the crop's ordinal, so it draws what the crop would have drawn.
    """
    fused: list[Step] = []
    for ordinal, step in steps:
        previous = fused[-1][1] if fused else None
        if (
            isinstance(step, Crop)
            and isinstance(previous, DecodeImage)
            and _can_fuse(previous, step)
        ):
            fused[-1] = (ordinal, DecodeAndCrop(decode=previous, crop=step))
        else:
            fused.append((ordinal, step))
    return fused


def _can_fuse(decode: DecodeImage, crop: Crop) -> bool:
    # JPEGs are decoded to 1 or 3 channels only. With 0, the crop could not know the shape.
    return decode.field == crop.field and decode.channels in (1, 3)
