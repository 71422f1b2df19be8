"""BMP: decoding of all uncompressed kinds but that of 16 bits, with or without a palette."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from infeed_server.transforms.images.channels import to_channels, to_dtype
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.file_bytes import first_bytes, numbers, read_bytes

_FILE_HEADER_BYTES = 14
_OS2_HEADER_BYTES = 12
"""Of the first header of OS/2, with sizes of two bytes and colours of three."""
_MIN_HEADER_BYTES = 40
_ALPHA_HEADER_BYTES = 56
"""The least header with a mask for alpha."""
_MASKS_END = 70

_LAYOUT = ((10, 4), (18, 4), (22, 4), (28, 2), (30, 4), (46, 4))
_OS2_LAYOUT = ((10, 4), (18, 2), (20, 2), (24, 2), (0, 0), (0, 0))
"""Places and sizes of the offset of the pixels, width, height, bits, compression and colours."""
_MASKS_LAYOUT = ((54, 4), (58, 4), (62, 4), (66, 4))

_UNCOMPRESSED, _BY_MASKS = 0, 3
"""Values of `compression`; with the second, masks state the bits of each channel."""
_USUAL_MASKS = (0xFF0000, 0xFF00, 0xFF, 0)
_BYTE_MASKS = (0xFF, 0xFF00, 0xFF0000, 0xFF000000)
_INDEXED_BITS = (1, 4, 8)
_DIRECT_BITS = (24, 32)

_REMEDY = "convert it to PNG"


class _Header(NamedTuple):
    """What the headers state, int64. `height` is negative if the first row is the top one."""

    size: tf.Tensor
    offset: tf.Tensor
    width: tf.Tensor
    height: tf.Tensor
    bits: tf.Tensor
    compression: tf.Tensor
    colours: tf.Tensor
    masks: tf.Tensor

    @property
    def colour_bytes(self) -> tf.Tensor:
        return tf.where(self.size == _OS2_HEADER_BYTES, tf.constant(3, tf.int64), 4)

    @property
    def room(self) -> tf.Tensor:
        """Number of colours between the header and the pixels."""
        return (self.offset - _FILE_HEADER_BYTES - self.size) // self.colour_bytes

    @property
    def rows(self) -> tf.Tensor:
        return tf.abs(self.height)

    @property
    def row_bytes(self) -> tf.Tensor:
        """Bytes of a row, without its padding to a multiple of four."""
        return (self.width * self.bits + 7) // 8

    @property
    def stride(self) -> tf.Tensor:
        return (self.row_bytes + 3) // 4 * 4


def decode_bmp(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes a BMP to [height, width, channels].

    With 0 channels, an image whose palette is grey has 1, one with a mask for alpha 4, others 3.
    """
    header = _read_header(contents)
    with tf.control_dependencies(_require_support(contents, header, decoding)):
        rows = _read_rows(contents, header)
    pixels = tf.cond(
        header.bits <= 8,
        lambda: _decode_indexed(contents, header, rows, decoding),
        lambda: to_channels(_decode_direct(header, rows), decoding.channels),
    )
    return to_dtype(pixels, decoding.dtype)


def _read_header(contents: tf.Tensor) -> _Header:
    data = first_bytes(contents, _MASKS_END)
    (size,) = tf.unstack(numbers(data, ((14, 4),)))
    is_os2 = size == _OS2_HEADER_BYTES
    fields = tf.where(is_os2, numbers(data, _OS2_LAYOUT), numbers(data, _LAYOUT))
    offset, width, height, bits, compression, colours = tf.unstack(fields)
    has_mask = tf.stack([True, True, True, size >= _ALPHA_HEADER_BYTES])
    masks = tf.where(has_mask, numbers(data, _MASKS_LAYOUT), 0)
    return _Header(
        size=size,
        offset=offset,
        width=_signed(width),
        height=_signed(height),
        bits=bits,
        compression=compression,
        colours=colours,
        masks=tf.where(compression == _BY_MASKS, masks, _USUAL_MASKS),
    )


def _signed(value: tf.Tensor) -> tf.Tensor:
    return tf.where(value < 1 << 31, value, value - (1 << 32))


def _require_support(
    contents: tf.Tensor, header: _Header, decoding: Decoding
) -> list[tf.Operation]:
    """Fails the sample for a BMP of another kind. Returns control dependencies."""
    bits, masks, compression = header.bits, header.masks, header.compression
    is_indexed, is_direct = (
        tf.reduce_any(bits == kinds) for kinds in (_INDEXED_BITS, _DIRECT_BITS)
    )
    places = _channel_places(header)
    is_byte = (places >= 0) & (places < bits // 8)
    is_byte |= (masks == 0) & [False, False, False, True]
    end = header.offset + (header.rows - 1) * header.stride + header.row_bytes
    length = tf.cast(tf.strings.length(contents), tf.int64)
    return decoding.require_all(
        (
            (
                (header.size == _OS2_HEADER_BYTES) | (header.size >= _MIN_HEADER_BYTES),
                f"is a BMP with an unknown header; {_REMEDY}; the header's bytes are",
                header.size,
            ),
            (
                is_indexed | is_direct,
                f"is a BMP with an unsupported number of bits per pixel; {_REMEDY}; they are",
                bits,
            ),
            (
                (compression == _UNCOMPRESSED) | (is_direct & (compression == _BY_MASKS)),
                f"is a compressed BMP; {_REMEDY}; its compression is",
                compression,
            ),
            (
                is_indexed | tf.reduce_all(is_byte),
                f"is a BMP whose channels are not whole bytes; {_REMEDY}; a channel's mask is",
                tf.gather(masks, tf.argmin(tf.cast(is_byte, tf.int32))),
            ),
            (
                is_direct | (header.room > 0),
                f"is a BMP without its palette; {_REMEDY}; its pixels begin at byte",
                header.offset,
            ),
            decoding.pixel_check(header.rows, header.width),
            (
                (header.width > 0) & (header.rows > 0),
                "is a BMP without pixels; its width or height is",
                tf.minimum(header.width, header.rows),
            ),
            (length >= end, "is a truncated BMP; the bytes that its header states are", end),
        )
    )


def _read_rows(contents: tf.Tensor, header: _Header) -> tf.Tensor:
    """Returns the rows of the file from the top, uint8 [height, stride]."""
    rows, stride, offset = (
        tf.cast(each, tf.int32) for each in (header.rows, header.stride, header.offset)
    )
    stored = tf.reshape(read_bytes(contents, offset, rows * stride), [rows, stride])
    return tf.raw_ops.Reverse(tensor=stored, dims=tf.stack([header.height > 0, False]))


def _decode_indexed(
    contents: tf.Tensor, header: _Header, rows: tf.Tensor, decoding: Decoding
) -> tf.Tensor:
    palette = _read_palette(contents, header)
    indices = _unpack(rows, tf.cast(header.bits, tf.int32))[:, : header.width]
    colours = tf.shape(palette)[0]
    is_stated = decoding.require(
        tf.reduce_max(indices) < colours,
        f"is a BMP with a pixel outside of its palette; {_REMEDY}; the colours are",
        colours,
    )
    with tf.control_dependencies(is_stated):
        return tf.gather(_palette_channels(palette, decoding.channels), indices)


def _unpack(rows: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Returns the numbers of `bits` bits in each row, the highest bits of a byte first, int32."""
    shifts = tf.cast(tf.range(8 - bits, -1, -bits), tf.uint8)
    shifted = tf.bitwise.right_shift(rows[..., tf.newaxis], shifts)
    mask = tf.cast(tf.bitwise.left_shift(1, bits) - 1, tf.uint8)
    numbers = tf.reshape(tf.bitwise.bitwise_and(shifted, mask), [tf.shape(rows)[0], -1])
    return tf.cast(numbers, tf.int32)


def _read_palette(contents: tf.Tensor, header: _Header) -> tf.Tensor:
    """Returns the colours, uint8 [colours, 3]: at most those between the header and the pixels."""
    limit = tf.bitwise.left_shift(tf.constant(1, tf.int64), header.bits)
    stated = tf.where(header.colours == 0, limit, tf.minimum(header.colours, limit))
    shape = tf.cast([tf.minimum(stated, header.room), header.colour_bytes], tf.int32)
    begin = tf.cast(_FILE_HEADER_BYTES + header.size, tf.int32)
    data = read_bytes(contents, begin, tf.reduce_prod(shape))
    return tf.reshape(data, shape)[:, 2::-1]


def _palette_channels(palette: tf.Tensor, channels: int) -> tf.Tensor:
    """Converts the colours, which are fewer than the pixels."""
    if channels == 0:
        is_grey = tf.reduce_all(palette == palette[:, :1])
        return palette[:, : tf.where(is_grey, 1, 3)]
    return to_channels(palette, channels)


def _decode_direct(header: _Header, rows: tf.Tensor) -> tf.Tensor:
    """Returns RGB pixels, or RGBA if there is a mask for alpha."""
    shape = tf.stack([header.rows, header.width, header.bits // 8])
    stored = tf.reshape(rows[:, : header.row_bytes], shape)
    channels = tf.where(header.masks[3] > 0, 4, 3)
    return tf.gather(stored, _channel_places(header)[:channels], axis=2)


def _channel_places(header: _Header) -> tf.Tensor:
    """Returns the byte of a pixel that has red, green, blue and alpha; -1 for none."""
    is_byte = header.masks[:, tf.newaxis] == _BYTE_MASKS
    return tf.where(tf.reduce_any(is_byte, axis=1), tf.argmax(is_byte, axis=1), -1)
