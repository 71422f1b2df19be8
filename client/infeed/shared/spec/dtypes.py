"""Data types of array elements: names and NumPy types."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import MissingExtraError

Array: TypeAlias = npt.NDArray[Any]
"""One field of a batch; the first dimension has the slots."""

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
    """Returns the least and greatest value of type `source` that the integer type `target`
    holds."""
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
