"""Decoding of bytes into pixels and numbers; fused with a following crop, it decodes only the
crop's window."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, Literal

import tensorflow as tf
from typing_extensions import override

from infeed_server.sources.base import Sample
from infeed_server.transforms.base import (
    Drawn,
    FieldTransform,
    Key,
    Transform,
    require_at_run_time,
    require_bytes,
)
from infeed_server.transforms.geometry import Crop, Window, crop_to_window
from infeed_server.transforms.images.formats import decode, decode_by_format, decode_traced
from infeed_server.transforms.images.graph import Decoding, call_traced
from infeed_server.transforms.images.jpeg import (
    decode_jpeg_window,
    is_cut_off,
    is_whole_jpeg,
)
from infeed_server.transforms.option_types import NumberType, Positive, Shape

# tf.io.decode_raw has no unsigned types of these widths; the signed ones have the same bits.
_SIGNED_TYPES = {"uint32": "int32", "uint64": "int64"}


class DecodeImage(FieldTransform):
    """Decodes an image file: JPEG, PNG, BMP, WebP or the first frame of a GIF.

    Result: bytes → `dtype`; `[height, width, channels]` of the upright image.
    """

    keeps_classes: ClassVar[bool] = True
    channels: Literal[0, 1, 3, 4] = 3
    """1: greyscale; 3: RGB; 4: RGBA (a file without alpha becomes opaque); 0: as in the file, so
    the number may vary between samples."""
    exif: Literal["apply", "ignore"] = "ignore"
    """Whether to turn a JPEG upright by its EXIF orientation."""
    dtype: Literal["uint8", "uint16"] = "uint8"
    """Type of the pixels: `uint16` keeps all bits of a 16-bit PNG; `uint8` keeps the high ones."""
    max_pixels: Positive = 1 << 26
    """Maximum pixels of an image, height times width. An image whose header states more is a bad
    sample, and takes no memory."""
    scale: Literal[1, 2, 4, 8] = 1
    """Divisor of height and width, rounded up. A JPEG is decoded at the smaller size, which takes
    less time; in other formats, blocks of pixels are averaged."""

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            subject=f"{self.name}: field {self.field}",
            channels=self.channels,
            dtype=self.dtype,
            max_pixels=self.max_pixels,
            oriented=self.exif == "apply",
            scale=self.scale,
        )

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self, instead="remove the second decode_image")
        return decode(contents, self.decoding)

    @override
    def explain(self, sample: Sample) -> str:
        is_cut = is_cut_off(sample[self.field].numpy())
        return "the JPEG is truncated: its last marker is missing" if is_cut else ""


class DecodeRaw(FieldTransform):
    """Decodes bytes as little-endian numbers, which must fill `shape` exactly.

    Result: bytes → `dtype`; `shape`.
    """

    dtype: NumberType = "uint8"
    """Type of the numbers."""
    shape: Shape
    """Shape of the array; `[]` for a scalar."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        contents = require_bytes(x, self, instead="remove decode_raw")
        dtype = tf.as_dtype(self.dtype)
        length = tf.strings.length(contents)
        expected = math.prod(self.shape) * dtype.size
        message = (
            f"{self.name}: field {self.field} must have {expected} bytes for "
            f"{self.dtype}{list(self.shape)}; it has"
        )
        fits = require_at_run_time(length == expected, message, length)
        with tf.control_dependencies(fits):
            flat = tf.io.decode_raw(contents, tf.as_dtype(_SIGNED_TYPES.get(self.dtype, dtype)))
        if self.dtype in _SIGNED_TYPES:
            flat = tf.bitcast(flat, dtype)
        return tf.reshape(flat, self.shape)


class DecodeAndCrop(Transform):
    """`decode_image` fused with a crop of its result. The planner inserts it; it has no name in
    YAML.

    Only the crop's window of a JPEG is decoded; the crop chooses it from the shape in the file's
    header. A JPEG that does not end with its last marker is decoded whole: it may be truncated, and
    is then a bad sample wherever the window lies. Window and pixels equal those of two separate
    steps with the same key.
    """

    decode: DecodeImage
    crop: Crop

    @property
    def random(self) -> bool:
        return self.crop.random

    @property
    def draw_name(self) -> str:
        return self.crop.draw_name

    @property
    def display_name(self) -> str:
        return f"{self.decode.name}+{self.crop.name}"

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        field = self.decode.field
        value = self.decode.get_field(sample, field)
        contents = require_bytes(value, self.decode, instead="remove the second decode_image")
        decoding = self.decode.decoding

        def choose_window(shape: tf.Tensor) -> Window:
            return self.crop.choose_window(shape, key)

        pixels = decode_by_format(
            contents,
            decoding,
            is_jpeg=is_whole_jpeg(contents),
            jpeg=partial(decode_jpeg_window, contents, decoding, choose_window),
            upright_jpeg=partial(
                decode_jpeg_window, contents, decoding, choose_window, upright=True
            ),
            # One call: a branch's operations take time even when the branch is not taken.
            other=lambda: call_traced(_decode_whole, contents, key, options=(decoding, self.crop)),
        )
        return {**sample, field: self.crop.to_output(pixels)}

    @override
    def explain(self, sample: Sample) -> str:
        return self.decode.explain(sample)

    @override
    def draw(self, sample: Sample, key: Key) -> Drawn:
        # Drawn for the whole image: `apply` chooses the same window from the shape in the file's
        # header.
        return self.crop.draw(self.decode.apply(sample, key), key)

    @override
    def fields(self) -> set[str] | None:
        return {self.decode.field}

    @override
    def identity(self) -> dict[str, Any]:
        return {self.name: [self.decode.identity(), self.crop.identity()]}


def _decode_whole(contents: tf.Tensor, key: Key, decoding: Decoding, crop: Crop) -> tf.Tensor:
    pixels = decode_traced(contents, decoding)
    return crop_to_window(pixels, crop.choose_window(tf.shape(pixels), key))
