"""The encodings of columns in Mosaic Streaming's format: types of values, and their decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed.shared.spec.dtypes import BYTES

Shape = tuple[int | None, ...]


class Value(NamedTuple):
    """A value of a sample: the bytes of an array in the order of C, or a byte string."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


Decode = Callable[[bytes], Value]
"""Decodes a value. Raises `ValueError` for bytes that are none."""

_STRINGS = ("bytes", "str", "json", "jpeg", "png")

_SCALARS = {"int": "int64"} | {
    name: name
    for name in (
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
}

_TEXTS: dict[str, type[np.generic]] = {
    "str_int": np.int64,
    "str_float": np.float64,
    "str_decimal": np.float64,
}
"""Encoding of numbers as text → the type that they are parsed to."""

_NUMBERED_TYPES = {
    8: "uint8",
    16: "uint16",
    32: "uint32",
    64: "uint64",
    9: "int8",
    17: "int16",
    33: "int32",
    65: "int64",
    18: "float16",
    34: "float32",
    66: "float64",
}
"""Number of a data type in front of an array → the type."""

_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4, "YCbCr": 3, "HSV": 3, "LAB": 3}
"""Mode of Pillow with a byte for each channel → channels."""


def decoder(column: str, encoding: str, size: int | None) -> Decode:
    """Returns the function that decodes the values of a column; `size` is what index.json has for
    each of them. Raises `SourceError` for an encoding that cannot be served."""
    name, _, options = encoding.partition(":")
    if encoding in _STRINGS:
        return _string
    if encoding in _SCALARS:
        return _array_decoder(column, size, _SCALARS[encoding], ())
    if encoding in _TEXTS:
        return partial(_parsed_text, _TEXTS[encoding])
    if encoding == "pil":
        return _picture
    if name == "ndarray":
        dtype, _, sizes = options.partition(":")
        known = dtype in _NUMBERED_TYPES.values() or not options
        dimensions = sizes.split(",") if sizes else []
        if known and all(one.isascii() and one.isdigit() for one in dimensions):
            shape = tuple(map(int, dimensions))
            if not shape:
                return partial(_described_array, dtype)
            return _array_decoder(column, size, dtype, shape)
    reasons = {
        "pkl": "a pickle runs code of the file when it is read",
        **dict.fromkeys(("jpeg_array", "jpegarray"), "it has several images in each sample"),
    }
    reason = reasons.get(name, "lists have no type" if name.startswith("list[") else "unknown")
    raise SourceError(
        f"the column {column!r} has the encoding {encoding!r}, which cannot be served ({reason}); "
        "name the other columns in fields, or write it as ndarray, json, bytes, jpeg or png"
    )


def _array_decoder(column: str, size: int | None, dtype: str, shape: tuple[int, ...]) -> Decode:
    """Returns a decoder of arrays of a fixed size, if that is the size in index.json."""
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if size not in (None, expected):
        raise SourceError(
            f"index.json: the column {column!r} has values of {size} bytes, but its encoding has "
            f"{expected}; write it again"
        )
    return partial(_array, dtype, shape)


def _string(data: bytes) -> Value:
    return Value(BYTES, (), data)


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Value:
    if len(data) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"{len(data)} bytes are no {dtype}{list(shape)}")
    return Value(dtype, shape, data)


def _parsed_text(dtype: type[np.generic], data: bytes) -> Value:
    try:
        number = dtype(data.decode("ascii"))
    except OverflowError as error:
        raise ValueError(f"{data[:40]!r} does not fit into 64 bits") from error
    return Value(number.dtype.name, (), number.tobytes())


def _described_array(dtype: str, data: bytes) -> Value:
    """Decodes an array behind its shape, and behind its type unless that is given."""
    begin = 0 if dtype else 1
    if not dtype:
        dtype = _NUMBERED_TYPES.get(data[0] if data else 0, "")
    if not dtype or len(data) <= begin:
        raise ValueError("it does not begin as an array does")
    # The number of dimensions, and the number of bits of each: 8, 16, 32 or 64.
    dimensions, width = data[begin] >> 2, 1 << (data[begin] & 3)
    begin, end = begin + 1, begin + 1 + dimensions * width
    sizes = [int.from_bytes(data[n : n + width], "little") for n in range(begin, end, width)]
    return _array(dtype, tuple(sizes), data[end:])


def _picture(data: bytes) -> Value:
    width, height, length = (int.from_bytes(data[n : n + 4], "little") for n in (0, 4, 8))
    mode = data[12 : 12 + length].decode("ascii")
    if mode not in _CHANNELS:
        known = ", ".join(_CHANNELS)
        raise ValueError(f"a picture of the mode {mode[:20]!r} is no array (known: {known})")
    return _array("uint8", (height, width, _CHANNELS[mode]), data[12 + length :])


class ColumnField(NamedTuple):
    """A column as a field: its type, and its shape with None for a size that varies."""

    decode: Decode
    dtype: str
    shape: Shape

    @property
    def varies(self) -> bool:
        return None in self.shape

    @property
    def spec(self) -> tf.TensorSpec:
        dtype = tf.string if self.dtype == BYTES else tf.as_dtype(self.dtype)
        return tf.TensorSpec(self.shape, dtype)

    def encode(self, data: bytes) -> bytes:
        """Returns the bytes of a value, behind the sizes of an array that varies. Raises
        `ValueError` for a value that does not fit the field."""
        value = self.decode(data)
        if value.dtype != self.dtype or not self._has_shape(value.shape):
            found, expected = f"{value.dtype}{[*value.shape]}", f"{self.dtype}{[*self.shape]}"
            raise ValueError(f"{found} does not fit the field, which has {expected}")
        if self.varies:
            return np.array(value.shape, np.int64).tobytes() + value.content
        return value.content

    def _has_shape(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self.shape) and all(
            expected in (None, size) for expected, size in zip(self.shape, shape, strict=True)
        )

    def parse(self, content: tf.Tensor) -> tf.Tensor:
        """Returns the array of a value that varies. Runs inside the pipeline's graph."""
        head = 8 * len(self.shape)
        sizes = tf.io.decode_raw(tf.strings.substr(content, 0, head), tf.int64)
        values = tf.strings.substr(content, head, -1)
        # TensorFlow decodes no unsigned numbers of these sizes.
        signed = self.dtype.removeprefix("u") if self.dtype in ("uint32", "uint64") else self.dtype
        decoded = tf.bitcast(tf.io.decode_raw(values, tf.as_dtype(signed)), self.spec.dtype)
        return tf.ensure_shape(tf.reshape(decoded, sizes), self.shape)


def infer_field(decode: Decode, values: Iterable[bytes]) -> ColumnField:
    """Returns the field of a column with such values, of which some may be damaged; a size that
    differs among them varies. Raises `ValueError` for values of several types, or of none."""
    found, problems = [], []
    for value in values:
        try:
            found.append(decode(value))
        except ValueError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    kinds = sorted({f"{value.dtype} of {len(value.shape)} dimensions" for value in found})
    if len(kinds) > 1:
        raise ValueError(f"its values differ in their types: {', '.join(kinds)}")
    sizes = zip(*(value.shape for value in found), strict=True)
    shape = tuple(one[0] if len(set(one)) == 1 else None for one in sizes)
    return ColumnField(decode, found[0].dtype, shape)
