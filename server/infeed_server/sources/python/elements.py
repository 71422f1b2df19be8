"""Elements of a data set: their values by field name, and the fields of some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from infeed.shared.errors import InfeedError, SampleError, UserCodeError
from infeed_server.sources.python.values import Field, UnfitError, Value, is_convertible, to_value

_MAX_EXAMPLES = 8
"""Elements that are read to find the fields, spread over the data set."""

SINGLE_VALUE = "value"
"""Field of an element that is neither a dict nor a tuple, unless it is named."""


class Example(NamedTuple):
    """An element that was read to find the fields, and its number."""

    number: int
    parts: Mapping[str, Any]


def example_indices(length: int) -> list[int]:
    """Returns the indices of elements to look at, from the first to the last."""
    count = min(_MAX_EXAMPLES, length)
    return [number * (length - 1) // max(1, count - 1) for number in range(count)]


def read_examples(length: int, read: Callable[[int], Mapping[str, Any]]) -> list[Example]:
    """Reads the elements to look at that are no bad samples. Raises the first error if all are."""
    examples: list[Example] = []
    errors: list[InfeedError] = []
    for index in example_indices(length):
        try:
            examples.append(Example(index, read(index)))
        except (UserCodeError, SampleError) as error:
            errors.append(error)
    if not examples:
        raise errors[0]
    return examples


def split(element: Any, names: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Returns the values of an element by field name. Raises `UnfitError`.

    A dict has its own names. The parts of a tuple or list are called by `names`, the fields of a
    named tuple, or their numbers.
    """
    if isinstance(element, Mapping):
        return _checked_dict(element, names)
    if not isinstance(element, tuple | list):
        element = (element,)
        names = names or (SINGLE_VALUE,)
    names = names or getattr(element, "_fields", None) or tuple(map(str, range(len(element))))
    if len(names) != len(element):
        raise UnfitError(
            f"has {len(element)} parts, and names has {len(names)}: {', '.join(names)}"
        )
    if not element:
        raise UnfitError("is empty")
    return dict(zip(names, element, strict=True))


def infer_fields(examples: Sequence[Example]) -> tuple[Field, ...]:
    """Returns the fields that all of these elements fit. Raises `UnfitError` if there are none.

    A size that differs among them varies.
    """
    first, *others = examples
    for other in others:
        if other.parts.keys() != first.parts.keys():
            raise UnfitError(
                f"{first.number} has the fields {', '.join(first.parts)}, and element "
                f"{other.number} has {', '.join(other.parts)}; declare those that all have with "
                "fields: ..."
            )
    return tuple(_infer_field(name, examples) for name in first.parts)


def _checked_dict(element: Mapping[Any, Any], names: Sequence[str] | None) -> Mapping[str, Any]:
    for name in element:
        if not isinstance(name, str) or not name:
            raise UnfitError(f"is a dict with the key {name!r}; names of fields are text")
    if names:
        raise UnfitError(
            f"is a dict, which has names of its own ({', '.join(element)}); leave out names"
        )
    if not element:
        raise UnfitError("is empty")
    return element


def _infer_field(name: str, examples: Sequence[Example]) -> Field:
    values = [(example.number, _named_value(example, name)) for example in examples]
    number, found = values[0]
    shape: tuple[int | None, ...] = found.array.shape
    for other_number, other in values[1:]:
        joined = _join(found, other)
        if joined is None or len(shape) != other.array.ndim:
            raise UnfitError(
                f"{number} has the field {name!r} as {values[0][1]}, and element {other_number} as "
                f"{other}; all must have one data type and number of dimensions"
            )
        found = joined
        sizes = zip(shape, other.array.shape, strict=True)
        shape = tuple(size if size == other_size else None for size, other_size in sizes)
    if found.data_type is None:
        raise UnfitError(
            f"{number} has the field {name!r} as an empty list, as the others that were looked at; "
            "declare its type with fields: ..."
        )
    return Field(name, found.data_type, shape)


def _named_value(example: Example, name: str) -> Value:
    try:
        return to_value(example.parts[name])
    except UnfitError as error:
        raise UnfitError(f"{example.number}: its field {name!r} {error}") from None


def _join(one: Value, other: Value) -> Value | None:
    """Returns the one whose data type fits both, None if neither does."""
    if one.data_type == other.data_type:
        return one if one.is_typed else other
    if one.data_type is None or other.data_type is None:
        return other if one.data_type is None else one
    if not one.is_typed and is_convertible(one.data_type, other.data_type):
        return other
    if not other.is_typed and is_convertible(other.data_type, one.data_type):
        return one
    return None
