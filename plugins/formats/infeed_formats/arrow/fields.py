"""Arrow columns as fields: their types, and their values as NumPy arrays."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from infeed.shared.errors import InfeedError, MissingExtraError
from infeed.shared.spec import BYTES, Array
from infeed_formats.values import Field, UnfitError, describe
from infeed_server.storage.faults import one_line
from infeed_server.storage.files import damaged_error

SEVERAL = "one of several with this name"


class RowError(ValueError):
    """A row without a value for a field; the message continues "its column x ..."."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row


def pyarrow() -> Any:
    """Returns PyArrow, imported on first use. Raises `MissingExtraError`."""
    try:
        for name in ("compute", "csv", "parquet"):
            importlib.import_module(f"pyarrow.{name}")
    except ImportError:
        raise MissingExtraError(
            "Parquet, CSV and Arrow files need PyArrow: pip install 'infeed[formats]'"
        ) from None
    return importlib.import_module("pyarrow")


@contextmanager
def decoding(path: str, what: str) -> Iterator[None]:
    """Turns the many errors that PyArrow raises for changed bytes into a `SourceError`, which names
    `what` cannot be read in the file."""
    try:
        yield
    except InfeedError:
        raise
    except Exception as error:
        problem = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        raise damaged_error(path, f": {what} cannot be read: {problem}") from error


def flatten(table: Any) -> Any:
    """Returns a table with nested columns split into parts, with names such as `a.b`."""
    while any(map(pyarrow().types.is_struct, table.schema.types)):
        table = table.flatten()
    return table


def column_types(schema: Any) -> dict[str, Any]:
    """Returns the column types of a flattened table by name; a text if several columns share the
    name."""
    flat = flatten(schema.empty_table()).schema
    kinds = dict(zip(flat.names, flat.types, strict=True))
    counts = Counter(flat.names)
    return {name: kinds[name] if counts[name] == 1 else SEVERAL for name in kinds}


def field_of(name: str, kind: Any) -> Field | None:
    """Returns the field for an Arrow type; None for a type that cannot be served, and for a text
    that explains why there is no type."""
    plain = None if isinstance(kind, str) else plain_type(kind)
    if plain is None:
        return None
    shape: list[int | None] = []
    while _is_list(plain):
        is_fixed = pyarrow().types.is_fixed_size_list(plain)
        shape.append(plain.list_size if is_fixed else None)
        plain = plain.value_type
    if plain == pyarrow().large_binary():
        data_type = BYTES
    else:
        data_type = "int64" if time_unit(kind) else np.dtype(plain.to_pandas_dtype()).name
    return Field(name, data_type, tuple(shape))


def time_unit(kind: Any) -> str:
    """Returns the type of a column's times, with their unit; empty for other values."""
    while (inner := _inner(kind)) is not None:
        kind = inner
    return str(kind) if _is_time(kind) else ""


def to_rows(array: Any, field: Field) -> Array:
    """Returns the values of a column. Raises `RowError` for the first row without one."""
    array = array.cast(plain_type(array.type))
    array = array.combine_chunks() if isinstance(array, pyarrow().ChunkedArray) else array
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise RowError(row, "is null")
    if not field.shape:
        return _dense(array)
    rows = field.empty(len(array))
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
    """Returns an array of a plain type as a NumPy array. Raises `UnfitError` for a null or for
    lists of different lengths."""
    if array.null_count:
        raise UnfitError("contains a null")
    if _is_list(array.type):
        sizes = set(array.value_lengths().to_pylist())
        if len(sizes) > 1:
            raise UnfitError("has lists of different lengths")
        inner = _dense(array.flatten())
        return inner.reshape(len(array), *(sizes or {0}), *inner.shape[1:])
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def plain_type(kind: Any) -> Any:
    """Returns the type to which values are converted: numbers, bytes, or lists of them; None if
    they cannot be served."""
    arrow, types = pyarrow(), pyarrow().types
    if _is_list(kind):
        inner = plain_type(kind.value_type)
        size = kind.list_size if types.is_fixed_size_list(kind) else -1
        return inner and arrow.list_(inner, size)
    if (inner := _inner(kind)) is not None:
        return plain_type(inner)
    if _is_time(kind):
        # PyArrow cannot cast 32-bit times to 64 bits directly.
        return arrow.int32() if kind.bit_width == 32 else arrow.int64()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return kind
    texts = types.is_string, types.is_large_string, types.is_string_view
    binaries = (
        *(types.is_binary, types.is_large_binary),
        *(types.is_fixed_size_binary, types.is_binary_view),
    )
    return arrow.large_binary() if any(one(kind) for one in (*texts, *binaries)) else None


def _inner(kind: Any) -> Any:
    """Returns the type inside a list, dictionary or extension type; None for other types."""
    if isinstance(kind, pyarrow().BaseExtensionType):
        return kind.storage_type
    return kind.value_type if _is_list(kind) or pyarrow().types.is_dictionary(kind) else None


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_time(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_temporal(kind) and not types.is_interval(kind))
