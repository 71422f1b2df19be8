"""Messages: dataclasses as protobuf messages; an enum's value is its name in lower case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from infeed.shared.errors import InvalidRequestError, ProtocolError

T = TypeVar("T")


def to_message(kind: type[T], value: Any, **converted: Any) -> T:
    """Returns a message filled from a dataclass's fields and `converted`; omits None."""
    values = {**vars(value), **converted}
    descriptor: Any = kind.DESCRIPTOR  # type: ignore[attr-defined]
    for field in descriptor.fields:
        if field.enum_type is not None and values.get(field.name) is not None:
            values[field.name] = _prefix(field.enum_type) + values[field.name].upper()
    return kind(**{name: values[name] for name in descriptor.fields_by_name if name in values})


def from_message(
    kind: type[T], message: Any, unspecified: Mapping[str, str] = {}, **converted: Any
) -> T:
    """Returns a dataclass filled from `converted` and the message's plain fields; `unspecified`
    gives the meaning of an enum's 0."""
    values = dict(converted)
    for name in {field.name for field in fields(kind)} - converted.keys():  # type: ignore[arg-type]
        field, value = message.DESCRIPTOR.fields_by_name[name], getattr(message, name)
        if field.enum_type is not None:
            is_known = value or name not in unspecified
            value = enum_name(field.enum_type, value) if is_known else unspecified[name]
        elif not isinstance(value, str | int | float):
            value = tuple(value)
        elif field.has_presence and not message.HasField(name):
            value = None
        values[name] = value
    return kind(**values)


def enum_name(enum: Any, value: int) -> str:
    """Returns the name of a value of an enum's descriptor: `none` for `ORDER_NONE`."""
    if not value or value not in enum.values_by_number:
        raise ProtocolError(
            f"the server sent {value} for {enum.name}, which is unknown to this client; upgrade "
            "infeed on the client"
        )
    name: str = enum.values_by_number[value].name
    return name.removeprefix(_prefix(enum)).lower()


def optional_enum_name(enum: Any, value: int) -> Any:
    """Returns the name of an enum's value; None for the unspecified one."""
    if value not in enum.values():
        name = enum.DESCRIPTOR.name.lower()
        raise InvalidRequestError(f"unknown {name} {value}", **{name: value})
    return enum_name(enum.DESCRIPTOR, value) if value else None


def _prefix(enum: Any) -> str:
    """Returns the common prefix of an enum's names, such as `ORDER_`."""
    name: str = enum.values_by_number[0].name
    return name.removesuffix("UNSPECIFIED")
