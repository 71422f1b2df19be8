"""The names of fields along a list of transforms, found without tracing a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infeed_server.config.model import Finding, KeyPath, did_you_mean
from infeed_server.transforms import Drop, Rename
from infeed_server.transforms.base import FieldTransform, Transform


def unknown_fields(
    names: Sequence[str], transforms: Sequence[Transform | None]
) -> Iterator[Finding]:
    """Yields each option of a transform that names a field that is not there.

    Stops at an invalid transform, given as None, and at a function of the user: the fields behind
    it are unknown.
    """
    fields = list(names)
    for number, transform in enumerate(transforms):
        if transform is None or transform.fields() is None:
            return
        for path, name in _named_fields(transform):
            if name not in fields:
                hint = did_you_mean(name, fields)
                text = f"no field {name!r}{hint}; available: {', '.join(fields)}"
                yield ("transforms", number, transform.name, *path), text
        fields = _fields_after(transform, fields)


def _named_fields(transform: Transform) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(transform, FieldTransform):
        yield ("field",), transform.field
    elif isinstance(transform, Rename):
        for name in transform.names:
            yield ("fields", name), name
    elif isinstance(transform, Drop):
        for name in transform.names:
            yield ("fields",), name


def _fields_after(transform: Transform, fields: Sequence[str]) -> list[str]:
    if isinstance(transform, Rename):
        # The new name of a misspelled field is there for the transforms behind.
        kept = [transform.names.get(name, name) for name in fields]
        return list(dict.fromkeys([*kept, *transform.names.values()]))
    if isinstance(transform, Drop):
        return [name for name in fields if name not in transform.names]
    return list(fields)
