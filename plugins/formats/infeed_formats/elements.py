"""Elements: their values by field name, the fields that they share, and the fields' columns.

A field holds a row of fixed shape for each element, or an array of varying shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from infeed.shared.spec.dtypes import Array
from infeed_formats.values import (
    Field,
    UnfitError,
    Value,
    fit,
    is_convertible,
    to_value,
)

Result = TypeVar("Result")

SINGLE_VALUE = "value"
"""Default field name of an element that is neither a dict nor a tuple."""


class Example(NamedTuple):
    """An element that was read to find the fields, and its number."""

    number: int
    values: Mapping[str, Value]


def read_good(
    indices: Iterable[int], read: Callable[[int], Result], *bad: type[Exception]
) -> list[Result]:
    """Returns the samples that can be read, without those that raise a `bad` error. Raises the
    first error if all are bad."""
    found: list[Result] = []
    errors: list[Exception] = []
    for index in indices:
        try:
            found.append(read(index))
        except bad as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def split(element: Any, names: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Returns the values of an element by field name. Raises `UnfitError`. Parts of a tuple take
    their names from `names`, a named tuple's fields, or their numbers."""
    if isinstance(element, Mapping):
        _check_dict(element, names)
        return element
    if not isinstance(element, tuple | list):
        element = (element,)
        names = names or (SINGLE_VALUE,)
    names = names or getattr(element, "_fields", None) or tuple(map(str, range(len(element))))
    if len(names) != len(element):
        raise UnfitError(
            f"has {len(element)} parts, but names has {len(names)}: {', '.join(names)}"
        )
    if not element:
        raise UnfitError("is empty")
    return dict(zip(names, element, strict=True))


def to_values(parts: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the values of an element as arrays. Raises the errors of `to_value`."""
    values = {}
    for name, part in parts.items():
        try:
            values[name] = to_value(part)
        except UnfitError as error:
            raise UnfitError(f"does not fit: its field {name!r} {error}") from None
    return values


def infer_fields(examples: Sequence[Example]) -> tuple[Field, ...]:
    """Returns the fields that all of these elements fit. Raises `UnfitError`."""
    first, *others = examples
    for other in others:
        if other.values.keys() != first.values.keys():
            raise UnfitError(
                f"{first.number} has the fields {', '.join(first.values)}, but element "
                f"{other.number} has {', '.join(other.values)}; declare the fields that all have "
                "with fields: ..."
            )
    return tuple(_infer_field(name, examples) for name in first.values)


def _check_dict(element: Mapping[Any, Any], names: Sequence[str] | None) -> None:
    for name in element:
        if not isinstance(name, str) or not name:
            raise UnfitError(f"is a dict with the key {name!r}; field names must be text")
    if names:
        raise UnfitError(f"is a dict with its own names ({', '.join(element)}); leave out names")
    if not element:
        raise UnfitError("is empty")


def _infer_field(name: str, examples: Sequence[Example]) -> Field:
    number, first = examples[0].number, examples[0].values[name]
    found = first
    shape: tuple[int | None, ...] = first.array.shape
    for other_number, values in examples[1:]:
        other = values[name]
        joined = _join(found, other)
        if joined is None or len(shape) != other.array.ndim:
            raise UnfitError(
                f"{number} has the field {name!r} as {first}, but element {other_number} as "
                f"{other}; all must have the same data type and number of dimensions"
            )
        found = joined
        sizes = zip(shape, other.array.shape, strict=True)
        shape = tuple(size if size == other_size else None for size, other_size in sizes)
    if found.data_type is None:
        raise UnfitError(
            f"{number} has an empty list as the field {name!r}, like the other elements examined; "
            "declare its type with fields: ..."
        )
    return Field(name, found.data_type, shape)


def _join(one: Value, other: Value) -> Value | None:
    """Returns the field whose data type fits both; None if neither does."""
    if one.data_type == other.data_type:
        return one if one.is_typed else other
    if one.data_type is None or other.data_type is None:
        return other if one.data_type is None else one
    if not one.is_typed and is_convertible(one.data_type, other.data_type):
        return other
    if not other.is_typed and is_convertible(other.data_type, one.data_type):
        return one
    return None


class ColumnBuilder:
    """Fills the columns of `fields`, row by row."""

    def __init__(self, fields: Sequence[Field], rows: int) -> None:
        self._fields = fields
        self.columns = {field.name: field.empty(rows) for field in fields}

    def set(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Copies arrays, which fit the fields, into a row."""
        for field in self._fields:
            array = arrays[field.name]
            if field.varies:
                self.columns[field.name][row] = np.array(array)
            else:
                self.columns[field.name][row, ...] = array


def fit_parts(
    parts: Mapping[str, Any], fields: Sequence[Field], *, allow_others: bool = False
) -> dict[str, Array]:
    """Returns the arrays of the fields. Raises `UnfitError`, even for others unless allowed."""
    if not allow_others and len(parts) > len(fields):
        known = [field.name for field in fields]
        other = next(name for name in parts if name not in known)
        raise UnfitError(
            f"has the field {other!r}, but the first elements have only {', '.join(known)}; "
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
