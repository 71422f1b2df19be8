"""Operations that the decoders of all image formats share: options, bytes of a file, channels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.transforms.base import require_at_run_time

_LUMA = (19595, 38470, 7471)
"""Weights of red, green and blue in the luma of ITU-R BT.601, times 65536, as libjpeg and Pillow
have them."""


@dataclass(frozen=True)
class Decoding:
    """The options of a `decode_image`. `subject` begins the messages: the transform and its field;
    `oriented` is whether to turn a JPEG upright by its EXIF; `scale` divides the size."""

    subject: str
    channels: int
    dtype: str
    max_pixels: int
    oriented: bool
    scale: int = 1

    def require(
        self, condition: tf.Tensor | bool, problem: str, value: tf.Tensor
    ) -> list[tf.Operation]:
        """Fails the sample unless the condition holds. Returns control dependencies."""
        return require_at_run_time(condition, f"{self.subject} {problem}", value)

    def require_pixels(self, height: tf.Tensor, width: tf.Tensor) -> list[tf.Operation]:
        """Fails the sample, before memory is taken, if its header states more pixels than allowed.
        Returns control dependencies."""
        count = tf.cast(height, tf.int64) * tf.cast(width, tf.int64)
        problem = f"must have at most {self.max_pixels} pixels (max_pixels); it has"
        return self.require(count <= self.max_pixels, problem, count)


def call_traced(
    function: Callable[..., tf.Tensor], *tensors: tf.Tensor, options: tuple[Hashable, ...] = ()
) -> tf.Tensor:
    """Calls `function(*tensors, *options)`; in a graph, as one call of a traced function. The
    decoders of unusual files have hundreds of operations, which so take no time until such a file
    comes."""
    if tf.executing_eagerly():
        # The examination of a bad sample runs eagerly: the error of a graph's function would have a
        # traceback.
        return function(*tensors, *options)
    specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors)
    return trace(function, specs, options)(*tensors)


@cache
def trace(
    function: Callable[..., tf.Tensor],
    specs: tuple[tf.TensorSpec, ...],
    options: tuple[Hashable, ...] = (),
) -> Callable[..., tf.Tensor]:
    """Returns the function from tensors of these specs, not inlined, traced once in a process."""
    traced = tf.function(
        lambda *tensors: function(*tensors, *options),
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    with tf.init_scope():
        concrete: Callable[..., Any] = traced.get_concrete_function(*specs)
    return concrete


def first_bytes(contents: tf.Tensor, count: int) -> tf.Tensor:
    """Returns the first `count` bytes of the file, uint8; zeros behind its end."""
    return tf.io.decode_raw(tf.strings.substr(contents, 0, count), tf.uint8, fixed_length=count)


def read_bytes(contents: tf.Tensor, begin: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
    """Returns `count` bytes of the file from `begin`, uint8; zeros behind its end."""
    begin = tf.minimum(begin, tf.strings.length(contents))
    part = tf.strings.substr(contents, begin, count)
    return tf.io.decode_raw(part, tf.uint8, fixed_length=count)


def numbers(
    data: tf.Tensor, places: Sequence[tuple[int, int]], *, big_endian: tf.Tensor | bool = False
) -> tf.Tensor:
    """Returns unsigned numbers from the bytes of the last dimension, int64, one for each (begin,
    size in bytes). One product computes all, since a graph of many small operations takes long to
    build."""
    length = max(begin + size for begin, size in places)
    ascending = np.zeros((len(places), length), np.int64)
    descending = np.zeros_like(ascending)
    for row, (begin, size) in enumerate(places):
        ascending[row, begin : begin + size] = 256 ** np.arange(size)
        descending[row, begin : begin + size] = 256 ** np.arange(size)[::-1]
    weights = tf.where(big_endian, descending, ascending)
    values = tf.cast(data[..., tf.newaxis, :length], tf.int64)
    return tf.reduce_sum(values * weights, axis=-1)


def begins_with(data: tf.Tensor, text: bytes) -> tf.Tensor:
    return tf.reduce_all(data[: len(text)] == list(text))


def to_channels(pixels: tf.Tensor, channels: int) -> tf.Tensor:
    """Converts RGB or RGBA, the last dimension, to `channels` channels; 0 keeps the file's. Alpha
    is dropped, or added as opaque."""
    if channels == 1:
        return luma(pixels)
    if channels == 3:
        return pixels[..., :3]
    if channels != 4:
        return pixels
    # An opaque channel is appended to both, and is the fifth of RGBA.
    paddings = [[0, 0]] * (pixels.shape.rank - 1) + [[0, 1]]
    return tf.pad(pixels, paddings, constant_values=pixels.dtype.max)[..., :4]


def average_blocks(pixels: tf.Tensor, scale: int) -> tf.Tensor:
    """Divides height and width by `scale`, rounded up: averages of blocks, rounded to the nearest
    integer (halves up). Blocks at the edges are smaller; what is missing is split between both
    edges."""
    # Every sum is exact: of at most 64 numbers of 16 bits.
    mean = tf.nn.avg_pool2d(tf.cast(pixels, tf.float32)[tf.newaxis], scale, scale, "SAME")[0]
    return tf.cast(mean + 0.5, pixels.dtype)


def luma(pixels: tf.Tensor) -> tf.Tensor:
    """Converts RGB or RGBA to grey, rounded to the nearest integer (halves up)."""
    # Every product and sum is exact: sums of uint8 have 24 bits.
    exact = tf.float32 if pixels.dtype == tf.uint8 else tf.float64
    colours = tf.unstack(tf.cast(pixels[..., :3], exact), 3, axis=-1)
    terms = (colour * (weight / 65536) for colour, weight in zip(colours, _LUMA, strict=True))
    return tf.cast(sum(terms, start=0.5), pixels.dtype)[..., tf.newaxis]


def to_dtype(pixels: tf.Tensor, dtype: str) -> tf.Tensor:
    """Converts uint8 pixels as TensorFlow's decoder does: times 256 for uint16."""
    return pixels if dtype == "uint8" else tf.cast(pixels, tf.uint16) * 256
