"""The fusion of `decode_image` with a crop: only the crop's window is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Key, Step, Transform, get_field
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.field_checks import require_bytes
from infeed_server.transforms.geometry import Crop, Window, crop_to_window
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.formats import decode_by_format, decode_traced
from infeed_server.transforms.images.jpeg import (
    decode_jpeg_window,
    decode_upright_jpeg_window,
    is_whole_jpeg,
)
from infeed_server.transforms.images.traced import call_traced


class DecodeAndCrop(Transform):
    """`decode_image` fused with a crop of its result. The planner inserts it; YAML has no name.

    Only the crop's window of a JPEG is decoded; the crop chooses it from the shape in the file's
    header. A JPEG that does not end with its last marker is decoded whole: it may be truncated,
    and is then a bad sample wherever the window lies.

    Window and pixels are the same as by two separate steps with the same key, except where a JPEG
    stores colour at half the resolution: the window's outermost columns cannot be smoothed with
    neighbours that were not decoded.
    """

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
        field = self.decode.field
        value = get_field(sample, field, self.decode.name)
        contents = require_bytes(value, self.decode, instead="an image is decoded once")
        decoding = self.decode.decoding

        def choose_window(shape: tf.Tensor) -> Window:
            return self.crop.choose_window(shape, key)

        pixels = decode_by_format(
            contents,
            decoding,
            is_jpeg=is_whole_jpeg(contents),
            jpeg=lambda: decode_jpeg_window(contents, decoding, choose_window),
            upright_jpeg=lambda: decode_upright_jpeg_window(contents, decoding, choose_window),
            # One call: the operations of a branch take time also where it is not taken.
            other=lambda: call_traced(_decode_whole, contents, key, options=(decoding, self.crop)),
        )
        return {**sample, field: self.crop.to_output(pixels)}

    @override
    def fields(self) -> set[str] | None:
        return {self.decode.field}

    @override
    def identity(self) -> dict[str, Any]:
        return {self.name: [self.decode.identity(), self.crop.identity()]}


def _decode_whole(contents: tf.Tensor, key: Key, decoding: Decoding, crop: Crop) -> tf.Tensor:
    pixels = decode_traced(contents, decoding)
    return crop_to_window(pixels, crop.choose_window(tf.shape(pixels), key))


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
    # Windows of JPEGs are decoded to 1 or 3 channels of uint8 only. With 0, the crop could not know
    # the shape.
    is_supported = decode.channels in (1, 3) and decode.dtype == "uint8"
    return decode.field == crop.field and is_supported
