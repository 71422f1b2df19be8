"""Fields of a sample in a tar: members by extension, and the values in their bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field

from infeed.shared.errors import ConfigError
from infeed.shared.spec import Array
from infeed_formats.arrays.npy_files import parse_npy
from infeed_formats.columns import Decode
from infeed_server.storage.files import abbreviate

_INTEGERS = ("cls", "index", "inx", "id")
_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,40}\s*")


FieldText: TypeAlias = (
    str | Annotated[dict[str, Literal["bytes", "int64"]], Field(min_length=1, max_length=1)]
)
"""A field in YAML: its extensions, optionally with the type of its values."""


class TarField(NamedTuple):
    """A field: its alternative extensions and the kind of its values."""

    extensions: tuple[str, ...]
    kind: str


def kind_of(extension: str) -> str:
    """Returns the kind for the last part of an extension: `int64`, `npy` or `bytes`."""
    last = extension.rpartition(".")[2]
    return "int64" if last in _INTEGERS else "npy" if last == "npy" else "bytes"


def default_fields(extensions: Sequence[str]) -> dict[str, str]:
    """Returns a field for each extension. Raises `ConfigError` if one yields no unique name."""
    fields: dict[str, str] = {}
    for extension in extensions:
        name = extension.replace(".", "_")
        if name in fields or not name.isprintable():
            raise ConfigError(
                f"the first sample's extension {extension!r} does not give a valid, unique field "
                "name; name the fields, as in fields: {image: jpg}",
                at=("fields",),
            )
        fields[name] = extension
    return fields


def decode_integer(member: bytes) -> int:
    """Parses a number. Raises `ValueError`."""
    value = int(member) if _INTEGER.fullmatch(member) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(
            f"is not an int64: {member[:20]!r}; to serve text, give the extension a type, as in "
            "fields: {label: {cls: bytes}}"
        )
    return value


def decode_npy(member: bytes) -> Array:
    """Parses the array in an npy. Raises `ValueError`."""
    try:
        return parse_npy(member)
    except ValueError as error:
        raise ValueError(f"is an npy that cannot be served: it {error}") from error


DECODERS: Mapping[str, Decode] = {"int64": decode_integer, "npy": decode_npy, "bytes": bytes}
"""Last part of an extension → decoder of members."""


def tar_fields(fields: Mapping[str, FieldText]) -> dict[str, TarField]:
    """Returns the fields with their extensions in lower case. Raises `ValueError`."""
    found = {}
    for name, value in fields.items():
        ((text, kind),) = [(value, None)] if isinstance(value, str) else value.items()
        extensions = tuple(text.lower().split(";"))
        if not all(extensions):
            raise ValueError(f"{name!r} has an empty extension; write them as in 'jpg;png'")
        kinds = {kind} if kind else set(map(kind_of, extensions))
        if len(kinds) > 1:
            raise ValueError(f"{name!r} has extensions of several types; make each a field")
        found[name] = TarField(extensions, *kinds)
    return found


def require_few_extensions(extensions: Iterable[str], samples: int) -> None:
    """Raises `ConfigError` if there are more extensions than samples and several end alike, as
    samples or fields then have dots in their names."""
    known = sorted({*extensions})
    last, count = Counter(text.rpartition(".")[2] for text in known).most_common(1)[0]
    if len(known) > samples and count > 1:
        raise ConfigError(
            f"keys end at a name's first dot, so there are {samples} samples with {len(known)} "
            f"extensions: {abbreviate(known)}; rename the members, such as x.1.{last} to "
            f"x_1.{last}, or if these are fields, name them: fields: {{NAME: {known[0]}}}",
            at=("webdataset",),
        )
