"""Columns of some samples: one row each, of a fixed shape, or else a serialized tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infeed.shared.spec.dtypes import BYTES, Array, numpy_dtype
from infeed_server.sources.python.values import Field, UnfitError, fit

_TENSOR_TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "bytes": 7,
    "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
"""Data type → its number in TensorFlow's enum `DataType`."""

_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
"""Fields of `TensorProto`."""

_SIZE_OF_DIMENSION, _DIMENSION = 1, 2
"""Fields of `TensorShapeProto.Dim`, and of `TensorShapeProto`."""


class ColumnBuilder:
    """Fills the columns of `fields`, row by row."""

    def __init__(self, fields: Sequence[Field], rows: int) -> None:
        self._fields = fields
        self.columns = {field.name: _empty(field, rows) for field in fields}

    def set(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Copies arrays, which fit the fields, into a row."""
        for field in self._fields:
            array = arrays[field.name]
            if field.varies:
                self.columns[field.name][row] = serialize(array, field.data_type)
            else:
                self.columns[field.name][row, ...] = array


def fit_parts(
    parts: Mapping[str, Any], fields: Sequence[Field], *, allow_others: bool = False
) -> dict[str, Array]:
    """Returns the arrays of the fields. Raises `UnfitError` for parts that do not fit them.

    `allow_others`: other fields are ignored.
    """
    if not allow_others and len(parts) > len(fields):
        known = [field.name for field in fields]
        other = next(name for name in parts if name not in known)
        raise UnfitError(
            f"has the field {other!r}, and the first elements have {', '.join(known)} only; "
            "ignore it with fields: ..."
        )
    arrays = {}
    for field in fields:
        if field.name not in parts:
            raise UnfitError(
                f"has no field {field.name!r}, expected as {field}; it has: {', '.join(parts)}"
            )
        try:
            arrays[field.name] = fit(parts[field.name], field)
        except UnfitError as error:
            raise UnfitError(f"does not fit: its field {field.name!r} {error}") from None
    return arrays


def serialize(array: Array, data_type: str) -> bytes:
    """Returns a serialized `TensorProto`, for `tf.io.parse_tensor`; made without TensorFlow."""
    sizes = [_number(_SIZE_OF_DIMENSION, size) for size in array.shape]
    shape = b"".join(_text(_DIMENSION, size) for size in sizes)
    head = _number(_DTYPE, _TENSOR_TYPES[data_type]) + _text(_SHAPE, shape)
    if data_type == BYTES:
        return head + b"".join(_text(_STRINGS, item) for item in array.flat)
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return head + _text(_CONTENT, native.tobytes())


def _empty(field: Field, rows: int) -> Array:
    if field.varies:
        return np.empty(rows, object)
    return np.empty((rows, *field.shape), numpy_dtype(field.data_type))  # type: ignore[arg-type]


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: bytes) -> bytes:
    return b"".join((_varint(field << 3 | 2), _varint(len(value)), value))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
