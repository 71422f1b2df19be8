"""GIF: decoding of the first frame, at its place on the canvas."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from infeed_server.transforms.images.channels import to_channels, to_dtype
from infeed_server.transforms.images.decoding import Decoding
from infeed_server.transforms.images.file_bytes import numbers

_HEADER_BYTES = 13
_EXTENSION = ord("!")
_FRAME = ord(",")
_FRAME_BYTES = 10
"""Of a frame's descriptor: its mark, left, top, width, height, and flags."""
_MAX_BLOCKS = 1000
"""Blocks of extensions before the first frame, so that a crafted file takes no time."""
_WINDOW_BYTES = 1 << 16
"""Part of the first frame in which blocks of one size are counted at a time."""
_MAX_RUNS = 10_000
"""Runs of blocks of one size that the first frame may have, so that a crafted file takes no time:
encoders write blocks of one size, and a last one."""


class _Frame(NamedTuple):
    """The descriptor of the first frame: its place in the file and on the canvas, int32.

    `corner` is top and left, `size` height and width.
    """

    place: tf.Tensor
    corner: tf.Tensor
    size: tf.Tensor


def decode_gif(contents: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Decodes the first frame of a GIF to [height, width, channels] of the canvas.

    Transparent pixels, and those around a frame that is smaller than the canvas, are black; with 4
    channels their alpha is 0.
    """
    length = tf.strings.length(contents)
    data = tf.io.decode_raw(contents, tf.uint8, fixed_length=length + _HEADER_BYTES + _FRAME_BYTES)
    frame = _first_frame(data, length)
    contents = _without_later_frames(contents, data, frame.place)
    is_frame = decoding.require(
        data[frame.place] == _FRAME,
        f"is a GIF without an image behind at most {_MAX_BLOCKS} blocks; its bytes are",
        length,
    )
    canvas = tf.cast(numbers(data, ((8, 2), (6, 2))), tf.int32)
    canvas = tf.maximum(canvas, frame.corner + frame.size)
    with tf.control_dependencies([*is_frame, *decoding.require_pixels(canvas[0], canvas[1])]):
        pixels = _decode_frame(contents, frame)
        if decoding.channels == 4:
            # With white for every colour, what is not white is transparent.
            white = _whitened(contents, data, frame.place)
            pixels = tf.concat([pixels, _decode_frame(white, frame)[..., :1]], axis=2)
    rest = canvas - frame.corner - frame.size
    pixels = tf.pad(pixels, tf.concat([tf.stack([frame.corner, rest], 1), [[0, 0]]], 0))
    return to_dtype(to_channels(pixels, decoding.channels), decoding.dtype)


def _first_frame(data: tf.Tensor, length: tf.Tensor) -> _Frame:
    def is_extension(place: tf.Tensor, is_inside: tf.Tensor) -> tf.Tensor:
        return is_inside | (data[place] == _EXTENSION)

    def skip_block(place: tf.Tensor, is_inside: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # An extension has two bytes, and blocks that begin with their size up to one of size 0.
        size = tf.cast(data[place], tf.int32)
        step = tf.where(is_inside, size + 1, 2)
        return tf.minimum(place + step, length), ~is_inside | (size > 0)

    place, _ = tf.while_loop(
        is_extension,
        skip_block,
        (tf.minimum(_HEADER_BYTES + _palette_bytes(data[10]), length), tf.constant(False)),
        parallel_iterations=1,
        maximum_iterations=_MAX_BLOCKS,
    )
    descriptor = numbers(data[place:], ((3, 2), (1, 2), (7, 2), (5, 2)))
    corner, size = tf.unstack(tf.reshape(tf.cast(descriptor, tf.int32), [2, 2]))
    return _Frame(place, corner, size)


def _without_later_frames(contents: tf.Tensor, data: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Returns the file up to the end of its first frame.

    TensorFlow decodes all frames, and takes memory for the largest, which may be of any size.
    """
    length = tf.strings.length(contents)

    def skip_run(begin: tf.Tensor) -> tuple[tf.Tensor]:
        step = tf.cast(data[begin], tf.int32) + 1
        differs = data[begin : begin + _WINDOW_BYTES : step] != data[begin]
        count = tf.argmax(tf.concat([differs, [True]], 0), output_type=tf.int32)
        return (tf.minimum(begin + count * step, length),)

    # A byte with the width of the codes precedes the blocks.
    first_block = place + _FRAME_BYTES + _palette_bytes(data[place + _FRAME_BYTES - 1]) + 1
    (end,) = tf.while_loop(
        lambda begin: data[begin] > 0,
        skip_run,
        (tf.minimum(first_block, length),),
        parallel_iterations=1,
        maximum_iterations=_MAX_RUNS,
    )
    return tf.strings.join([tf.strings.substr(contents, 0, end + 1), b";"])


def _decode_frame(contents: tf.Tensor, frame: _Frame) -> tf.Tensor:
    """Decodes the first frame alone, RGB.

    TensorFlow's canvas is as large as the largest frame, wherever the frames are, so the first is
    moved to its corner.
    """
    after_corner = frame.place + 5
    moved = tf.strings.join(
        [
            tf.strings.substr(contents, 0, frame.place + 1),
            b"\0\0\0\0",
            _rest(contents, after_corner),
        ]
    )
    pixels = tf.io.decode_image(moved, channels=3, expand_animations=False)
    return pixels[: frame.size[0], : frame.size[1]]


def _whitened(contents: tf.Tensor, data: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Returns the file with white for every colour of the canvas and of the first frame."""
    shared, own = _palette_bytes(data[10]), _palette_bytes(data[place + 9])
    after = place + _FRAME_BYTES
    return tf.strings.join(
        [
            tf.strings.substr(contents, 0, _HEADER_BYTES),
            _white(shared),
            tf.strings.substr(contents, _HEADER_BYTES + shared, after - _HEADER_BYTES - shared),
            _white(own),
            _rest(contents, after + own),
        ]
    )


def _palette_bytes(flags: tf.Tensor) -> tf.Tensor:
    bits = tf.cast(flags, tf.int32)
    return tf.where(bits >= 0x80, 3 * tf.bitwise.left_shift(2, bits % 8), 0)


def _white(count: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(b"\xff" * (3 * 256), 0, count)


def _rest(contents: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
    length = tf.strings.length(contents)
    return tf.strings.substr(contents, tf.minimum(begin, length), length)
