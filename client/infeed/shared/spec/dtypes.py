"""Data types of array elements: names, NumPy types and protobuf enums."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import MissingExtraError, ProtocolError
from infeed.v1 import spec_pb2

Array: TypeAlias = npt.NDArray[Any]
"""One field of a batch; the first dimension is that of the slots."""

BYTES = "bytes"
"""The data type of a field of byte strings; in NumPy an object array of `bytes`."""

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16"),
)
DATA_TYPES = (*_NUMBERS, BYTES)
"""The names of all data types: NumPy's, and `bytes`."""


def numpy_dtype(data_type: str) -> np.dtype[Any]:
    """Returns the NumPy type of a data type; `object` for byte strings."""
    if data_type == BYTES:
        return np.dtype(object)
    if data_type == "bfloat16":
        try:
            import ml_dtypes  # noqa: PLC0415 - only this type needs the package
        except ImportError:
            raise MissingExtraError(
                "this pipeline has a bfloat16 field, which needs the package ml_dtypes: "
                "pip install ml_dtypes"
            ) from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(data_type)


def shared_range(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[Any, Any]:
    """Returns the least and the greatest value of the type `source` that the integer type has.

    Both are finite and of the type `source`, a type of numbers other than bool.
    """
    limits = np.iinfo(target)
    if source.kind in "iu":
        own = np.iinfo(source)
        return source.type(max(own.min, limits.min)), source.type(min(own.max, limits.max))
    # Significant bits: 8 of bfloat16, 11, 24 or 53. NumPy's finfo does not know bfloat16.
    digits = {"bfloat16": 8}.get(source.name) or np.finfo(source).nmant + 1
    dropped = max(0, limits.max.bit_length() - digits)
    low, high = limits.min, limits.max >> dropped << dropped
    if source.name == "float16":
        low, high = max(low, -65504), min(high, 65504)
    return source.type(float(low)), source.type(float(high))


def data_type_to_proto(data_type: str) -> spec_pb2.DataType:
    number = spec_pb2.DataType.Value(f"DATA_TYPE_{data_type.upper()}")
    return cast("spec_pb2.DataType", number)


def data_type_from_proto(value: int) -> str:
    name: str = enum_name(spec_pb2.DataType, value, "DATA_TYPE_")
    return name


def enum_name(enum: Any, value: int, prefix: str) -> Any:
    """Returns the name of an enum value without its prefix: `none` for `ORDER_NONE`.

    Raises `ProtocolError` for an unknown value.
    """
    names = {number: name.removeprefix(prefix).lower() for name, number in enum.items() if number}
    if value not in names:
        raise ProtocolError(
            f"the server sent {value} for {enum.DESCRIPTOR.name}, which is unknown to this client; "
            "upgrade infeed on the client"
        )
    return names[value]
