"""The fields of a sample in a tar: members by their extensions, and the values in their bytes."""

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
"""A field as YAML has it: its extensions, or these with the type of the values."""


class TarField(NamedTuple):
    """A field: its extensions, one of which a sample has, and the kind of its values."""

    extensions: tuple[str, ...]
    kind: str


def kind_of(extension: str) -> str:
    """Returns `int64`, `npy` or `bytes`: what the last part of an extension stands for."""
    last = extension.rpartition(".")[2]
    return "int64" if last in _INTEGERS else "npy" if last == "npy" else "bytes"


def default_fields(extensions: Sequence[str]) -> dict[str, str]:
    """Returns a field for each extension. Raises `ConfigError` for one without a good name."""
    fields: dict[str, str] = {}
    for extension in extensions:
        name = extension.replace(".", "_")
        if name in fields or not name.isprintable():
            raise ConfigError(
                f"the extension {extension!r} of the first sample makes no name of a field, or one "
                "that another makes too; name them, as in fields: {image: jpg}",
                at=("fields",),
            )
        fields[name] = extension
    return fields


def decode_integer(member: bytes) -> int:
    """Returns the number in a text. Raises `ValueError`."""
    value = int(member) if _INTEGER.fullmatch(member) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(
            f"is no int64: {member[:20]!r}; to serve text, name the type of the extension, as in "
            "fields: {label: {cls: bytes}}"
        )
    return value


def decode_npy(member: bytes) -> Array:
    """Returns the array in an npy. Raises `ValueError`."""
    try:
        return parse_npy(member)
    except ValueError as error:
        raise ValueError(f"is no npy that can be served: it {error}") from error


DECODERS: Mapping[str, Decode] = {"int64": decode_integer, "npy": decode_npy, "bytes": bytes}
"""What the last part of an extension stands for → decoder of members."""


def tar_fields(fields: Mapping[str, FieldText]) -> dict[str, TarField]:
    """Returns the fields with their extensions in lower case. Raises `ValueError`."""
    found = {}
    for name, value in fields.items():
        ((text, kind),) = [(value, None)] if isinstance(value, str) else value.items()
        extensions = tuple(text.lower().split(";"))
        if not all(extensions):
            raise ValueError(f"{name!r} has an empty extension; name them as in 'jpg;png'")
        kinds = {kind} if kind else set(map(kind_of, extensions))
        if len(kinds) > 1:
            raise ValueError(f"{name!r} has extensions of several types; make fields of them")
        found[name] = TarField(extensions, *kinds)
    return found


def require_few_extensions(extensions: Iterable[str], samples: int) -> None:
    """Raises `ConfigError` for more extensions than samples, where several end alike: dots in
    the names of samples, or fields with such names."""
    known = sorted({*extensions})
    last, count = Counter(text.rpartition(".")[2] for text in known).most_common(1)[0]
    if len(known) > samples and count > 1:
        raise ConfigError(
            f"a key ends at the first dot of a name, so there are {samples} samples with "
            f"{len(known)} extensions: {abbreviate(known)}; rename the members, as x_1.{last} for "
            f"x.1.{last}, or if these are fields, name them: fields: {{NAME: {known[0]}}}",
            at=("webdataset",),
        )
