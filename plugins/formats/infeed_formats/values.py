"""Values of elements as arrays, from NumPy arrays, Python's numbers, text, bytes and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from infeed.shared.spec.dtypes import BYTES, DATA_TYPES, Array, numpy_dtype

_CONVERSIONS = {
    "bool": ("bool",),
    "int": ("int", "uint", "float", "bfloat"),
    "uint": ("int", "uint", "float", "bfloat"),
    "float": ("float", "bfloat"),
}
"""Kind of a Python number → kinds of data types that can represent it."""


_CONVERT = {
    "M": "convert it: .astype('int64'), in its unit",
    "m": "convert it: .astype('int64'), in its unit",
    "c": "make arrays of .real and .imag",
    "f": "convert it: .astype('float64')",
    "V": "NumPy saves bfloat16 as bare bytes; convert it first: .astype('float32')",
}
"""Kind of a NumPy data type that cannot be served → what to serve instead."""


class UnfitError(ValueError):
    """A value or element that cannot be served; the message continues "element 3 ..."."""


@dataclass(frozen=True)
class Field:
    """A field of the elements; None in its shape is a varying size."""

    name: str
    data_type: str
    shape: tuple[int | None, ...] = ()

    @property
    def varies(self) -> bool:
        return None in self.shape

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self.shape) and all(
            expected in (None, size) for expected, size in zip(self.shape, shape, strict=True)
        )

    def empty(self, rows: int) -> Array:
        """Returns an array for a number of values; varying arrays become its objects."""
        if self.varies:
            return np.empty(rows, object)
        return np.empty((rows, *self.shape), numpy_dtype(self.data_type))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return describe(self.data_type, self.shape)


class Value(NamedTuple):
    """A value as an array, with text as `bytes`; `is_typed` if its data type is NumPy's own."""

    array: Array
    is_typed: bool

    @property
    def data_type(self) -> str | None:
        """None for an empty list, which can have any type."""
        if not self.is_typed and not self.array.size:
            return None
        return BYTES if self.array.dtype == object else self.array.dtype.name

    def __str__(self) -> str:
        return describe(self.data_type or "empty ", self.array.shape)


def describe(data_type: str, shape: tuple[int | None, ...]) -> str:
    """Returns `uint8[?, ?, 3]`."""
    return f"{data_type}[{', '.join('?' if size is None else str(size) for size in shape)}]"


def kind_of(data_type: str) -> str:
    """Returns `int` for `int64`."""
    return data_type.rstrip("0123456789")


def is_convertible(data_type: str, target: str) -> bool:
    """Returns whether Python numbers of a type can be converted to another."""
    return kind_of(target) in _CONVERSIONS.get(kind_of(data_type), ())


def to_value(value: Any) -> Value:
    """Returns a value as an array. Raises `UnfitError`, and any error of its `__array__`."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        text = np.empty((), object)
        text[()] = _to_bytes(value)
        return Value(text, is_typed=True)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise UnfitError("has masked values; fill them, filled(...), or serve the mask as well")
    if _is_array(value):
        return Value(_supported(np.asarray(value)), is_typed=True)
    if isinstance(value, bool | int | float):
        return Value(_supported(np.asarray(value)), is_typed=False)
    if isinstance(value, list | tuple):
        return Value(_from_list(value), is_typed=False)
    if value is None:
        raise UnfitError("is None")
    remedy = "; give each of its values a field of its own" if isinstance(value, dict) else ""
    raise UnfitError(
        f"is a {type(value).__name__}, which is neither an array nor a number, text or bytes"
        f"{remedy}"
    )


def check_data_type(array: Array) -> None:
    """Raises `UnfitError` for an array without numbers that can be served."""
    if array.dtype.name not in DATA_TYPES:
        known = ", ".join(data_type for data_type in DATA_TYPES if data_type != BYTES)
        remedy = "make an array of each part" if array.dtype.names else _CONVERT[array.dtype.kind]
        raise UnfitError(
            f"has the unsupported data type {array.dtype}; {remedy}; "
            f"supported: text, bytes, {known}"
        )


def fit(value: Any, field: Field) -> Array:
    """Returns a value with its field's data type and shape. Raises the errors of `to_value`."""
    found = to_value(value)
    array = found.array
    if found.data_type != field.data_type:
        array = _convert(found, field)
    if not field.has_shape(array.shape):
        raise UnfitError(f"is {found}, not {field}")
    return array


def _is_array(value: Any) -> bool:
    kind = type(value)
    return (
        isinstance(value, np.ndarray | np.generic)
        or hasattr(kind, "__array__")
        or hasattr(kind, "__array_interface__")
    )


def _from_list(value: Any) -> Array:
    try:
        array = np.asarray(value)
        # NumPy turns values beside text into text, and strips trailing zeros from bytes.
        if array.dtype.kind in "SUO":
            array = np.array(value, object)
    except ValueError:
        raise UnfitError("is a list whose items differ in shape") from None
    return _supported(array)


def _supported(array: Array) -> Array:
    """Returns the array with text as bytes. Raises `UnfitError` for another data type."""
    if array.dtype.kind in "SUO":
        return _encode(array.astype(object))
    check_data_type(array)
    return array


def _encode(array: Array) -> Array:
    encoded = np.empty(array.size, object)
    encoded[:] = [_to_bytes(item) for item in array.flat]
    return encoded.reshape(array.shape)


def _to_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise UnfitError(f"has text that is not valid Unicode: {error.reason}") from None
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, int):
        raise UnfitError(f"has the integer {item}, which exceeds 64 bits or is beside text")
    raise UnfitError(f"holds a {type(item).__name__}, which is neither a number, text nor bytes")


def _convert(value: Value, field: Field) -> Array:
    """Converts Python numbers to the field's data type, if they are in its range."""
    target = numpy_dtype(field.data_type)
    if value.data_type is None:
        return np.empty(value.array.shape, target)
    if value.is_typed or not is_convertible(value.data_type, field.data_type):
        raise UnfitError(f"is {value}, not {field}")
    if target.kind in "iu":
        limits = np.iinfo(target)
        lowest, highest = int(value.array.min()), int(value.array.max())
        if lowest < limits.min or highest > limits.max:
            outlier = lowest if lowest < limits.min else highest
            raise UnfitError(f"has {outlier}, outside the range of {field.data_type}")
    with np.errstate(over="ignore"):
        return value.array.astype(target)
