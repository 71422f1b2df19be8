"""Differing options of two sources, as a user wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Any

from pydantic import BaseModel

_MAX_TEXT = 120


def option_changes(path: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Yields the path of each option that differs, its old and its new value, empty if absent."""
    before, after = _children(old), _children(new)
    if before is None or after is None:
        was, now = ("" if one is None else shorten(_text(one), _MAX_TEXT) for one in (old, new))
        if was != now:
            yield path, was, now
        return
    for key in {**before, **after}:
        yield from option_changes(f"{path}.{key}", before.get(key), after.get(key))


def _children(value: Any) -> dict[str, Any] | None:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {field.alias or name: getattr(value, name) for name, field in fields.items()}
    if isinstance(value, Mapping):
        return {str(key): one for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return {str(number): one for number, one in enumerate(value)}
    return None


def _text(value: Any) -> str:
    """Returns a value as in a YAML file, without options that have their default."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    if (children := _children(value)) is None:
        return str(value)
    if isinstance(value, BaseModel):
        given = value.model_dump(by_alias=True, exclude_defaults=True)
        children = {key: one for key, one in children.items() if key in given}
    return f"{{{', '.join(f'{key}: {_text(one)}' for key, one in children.items())}}}"
