"""Columns of Arrow as fields: their types, and their values as arrays of NumPy."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from infeed.shared.errors import MissingExtraError
from infeed.shared.spec import BYTES, Array
from infeed.shared.spec.dtypes import numpy_dtype
from infeed_server.sources.python.values import Field, UnfitError, describe


class RowError(ValueError):
    """A row without a value for a field; the message continues "its column x ..."."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row


def pyarrow() -> Any:
    """Returns PyArrow, imported on first use. Raises `MissingExtraError`."""
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError(
            "Parquet and Arrow files need PyArrow: pip install 'infeed[formats]'"
        ) from None
    return importlib.import_module("pyarrow")


def flatten(table: Any) -> Any:
    """Returns a table whose columns are the parts of nested ones, with names such as `a.b`."""
    while any(map(pyarrow().types.is_struct, table.schema.types)):
        table = table.flatten()
    return table


def column_types(schema: Any) -> dict[str, Any]:
    """Returns the types of the columns of a flattened table, by name. Raises `ValueError`."""
    flat = flatten(schema.empty_table()).schema
    if len(names := set(flat.names)) < len(flat.names):
        twice = next(name for name in flat.names if flat.names.count(name) > 1 and name in names)
        raise ValueError(f"two columns have the name {twice!r}")
    return dict(zip(flat.names, flat.types, strict=True))


def field_of(name: str, kind: Any) -> Field | None:
    """Returns the field that a type of Arrow becomes; None for one that cannot be served."""
    types = pyarrow().types
    shape: list[int | None] = []
    kind = _stored(kind)
    while _is_list(kind):
        shape.append(kind.list_size if types.is_fixed_size_list(kind) else None)
        kind = _stored(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        data_type = np.dtype(kind.to_pandas_dtype()).name
    elif _is_text(kind) or _is_binary(kind):
        data_type = BYTES
    elif _is_time(kind):
        data_type = "int64"
    else:
        return None
    return Field(name, data_type, tuple(shape))


def time_unit(kind: Any) -> str:
    """Returns the type of times in a column, which has their unit; empty for other values."""
    kind = _stored(kind)
    while _is_list(kind):
        kind = _stored(kind.value_type)
    return str(kind) if _is_time(kind) else ""


def empty(field: Field, rows: int) -> Array:
    """Returns the array of a column; one whose arrays vary has them as objects."""
    if field.varies:
        return np.empty(rows, object)
    return np.empty((rows, *field.shape), numpy_dtype(field.data_type))  # type: ignore[arg-type]


def to_rows(column: Any, field: Field) -> Array:
    """Returns the values of a column. Raises `RowError` for the first row without one."""
    array = column.combine_chunks() if isinstance(column, pyarrow().ChunkedArray) else column
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise RowError(row, "is null, which is no value")
    if not field.shape:
        try:
            return _dense(array)
        except UnfitError:  # a dictionary with a null in it
            return to_rows(array.dictionary_decode(), field)
    rows = empty(field, len(array))
    array = array.storage if isinstance(array, pyarrow().ExtensionArray) else array
    for row, item in enumerate(array):
        try:
            value = _dense(item.values)
        except UnfitError as error:
            raise RowError(row, str(error)) from None
        if not field.has_shape(value.shape):
            raise RowError(row, f"is {describe(field.data_type, value.shape)}, not {field}")
        rows[row] = value
    return rows


def _dense(array: Any) -> Array:
    """Returns an array of Arrow as one of NumPy. Raises `UnfitError` for a null in it, and for
    lists that differ in length."""
    types = pyarrow().types
    if isinstance(array, pyarrow().ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        raise UnfitError("has a null in it, which is no value")
    kind = array.type
    if _is_list(kind):
        sizes = set(array.value_lengths().to_pylist())
        if len(sizes) > 1:
            raise UnfitError("has lists of different lengths")
        inner = _dense(array.flatten())
        return inner.reshape(len(array), *(sizes or {0}), *inner.shape[1:])
    if _is_text(kind) or _is_binary(kind):
        binary = pyarrow().large_binary() if types.is_large_string(kind) else pyarrow().binary()
        content = np.empty(len(array), object)
        content[:] = (array.cast(binary) if _is_text(kind) else array).to_pylist()
        return content
    if _is_time(kind):
        # PyArrow casts no times of 32 bits to 64 bits at once.
        array = array.cast(f"int{kind.bit_width}").cast("int64")
    numbers: Array = array.to_numpy(zero_copy_only=False)
    return numbers


def _stored(kind: Any) -> Any:
    """Returns the type of the values of a dictionary, or behind an extension of Arrow."""
    if isinstance(kind, pyarrow().BaseExtensionType):
        return _stored(kind.storage_type)
    return _stored(kind.value_type) if pyarrow().types.is_dictionary(kind) else kind


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_binary(kind: Any) -> bool:
    types = pyarrow().types
    is_varying = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(is_varying or types.is_fixed_size_binary(kind))


def _is_time(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_temporal(kind) and not types.is_interval(kind))
