"""Column encodings in Mosaic Streaming's format: the types of values and their decoding."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from infeed.shared.errors import SourceError
from infeed.shared.spec import Array
from infeed_formats.columns import Decode

_STRINGS = ("bytes", "str", "json", "jpeg", "png")

_TEXTS: dict[str, type[np.generic]] = {
    "str_int": np.int64,
    "str_float": np.float64,
    "str_decimal": np.float64,
}
"""Encoding of numbers as text → the parsed type."""

_NUMBERED_TYPES = {
    bits + number: f"{kind}{bits}"
    for number, kind in enumerate(("uint", "int", "float"))
    for bits in ((8, 16, 32, 64) if kind != "float" else (16, 32, 64))
}
"""Number stored before an array → its data type."""

_SCALARS = {"int": "int64"} | {name: name for name in _NUMBERED_TYPES.values()}

_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4, "YCbCr": 3, "HSV": 3, "LAB": 3}
"""Pillow mode with a byte for each channel → channels."""


def decoder(column: str, encoding: str, size: int | None) -> Decode:
    """Returns a function that decodes the values of a column; `size` is a value's size according to
    index.json. Raises `SourceError` for an encoding that cannot be served."""
    name, _, options = encoding.partition(":")
    if encoding in _STRINGS:
        return bytes
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
        "pkl": "reading a pickle runs code in the file",
        **dict.fromkeys(("jpeg_array", "jpegarray"), "it has several images in each sample"),
    }
    reason = reasons.get(name, "lists have no type" if name.startswith("list[") else "unknown")
    raise SourceError(
        f"the column {column!r} has the encoding {encoding!r}, which cannot be served ({reason}); "
        "name the other columns in fields, or write it as ndarray, json, bytes, jpeg or png"
    )


def _array_decoder(column: str, size: int | None, dtype: str, shape: tuple[int, ...]) -> Decode:
    """Returns a decoder of fixed-size arrays. Raises `SourceError` if index.json differs."""
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if size not in (None, expected):
        raise SourceError(
            f"index.json: the column {column!r} has values of {size} bytes, but its encoding has "
            f"{expected}; write it again"
        )
    return partial(_array, dtype, shape)


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    if len(data) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"has {len(data)} bytes, which do not fit {dtype}{list(shape)}")
    return np.frombuffer(data, dtype).reshape(shape)


def _parsed_text(dtype: type[np.generic], data: bytes) -> np.generic:
    try:
        number: np.generic = dtype(data.decode("ascii"))
    except (OverflowError, ValueError) as error:
        raise ValueError(f"is {data[:40]!r}, which is not a 64-bit number") from error
    return number


def _described_array(dtype: str, data: bytes) -> Array:
    """Decodes an array preceded by its shape, and by its type unless that is given."""
    begin = 0 if dtype else 1
    if not dtype:
        dtype = _NUMBERED_TYPES.get(data[0] if data else 0, "")
    if not dtype or len(data) <= begin:
        raise ValueError("does not begin like an array")
    # The number of dimensions, and the number of bits of each: 8, 16, 32 or 64.
    dimensions, width = data[begin] >> 2, 1 << (data[begin] & 3)
    begin, end = begin + 1, begin + 1 + dimensions * width
    sizes = [int.from_bytes(data[n : n + width], "little") for n in range(begin, end, width)]
    return _array(dtype, tuple(sizes), data[end:])


def _picture(data: bytes) -> Array:
    width, height, length = (int.from_bytes(data[n : n + 4], "little") for n in (0, 4, 8))
    mode = data[12 : 12 + length].decode("ascii")
    if mode not in _CHANNELS:
        known = ", ".join(_CHANNELS)
        raise ValueError(f"is a picture with the unknown mode {mode[:20]!r}; known: {known}")
    return _array("uint8", (height, width, _CHANNELS[mode]), data[12 + length :])
