"""The fields of a sample in a tar: members by their extensions, and the values in their bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib import format as npy

from infeed.shared.errors import ConfigError
from infeed.shared.spec import Array
from infeed_server.sources.columns import Decode
from infeed_server.sources.python.values import check_data_type

_INTEGERS = ("cls", "index", "inx", "id")
_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,40}\s*")


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
                f"source.webdataset: the extension {extension!r} of the first sample makes no name "
                "of a field, or one that another makes too; name them, as in fields: {image: jpg}"
            )
        fields[name] = extension
    return fields


def decode_integer(member: bytes) -> int:
    """Returns the number in a text. Raises `ValueError`."""
    value = int(member) if _INTEGER.fullmatch(member) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"is no int64: {member[:20]!r}")
    return value


def decode_npy(member: bytes) -> Array:
    """Returns the array in an npy, without a copy, and without memory for a damaged shape. Raises
    `ValueError`."""
    file = io.BytesIO(member)
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        check_data_type(np.empty(0, dtype))
        values = np.frombuffer(member, dtype, offset=file.tell())
        return values.reshape(shape, order="F" if fortran else "C")
    except Exception as error:  # NumPy raises many for a byte that changed
        raise ValueError(f"is no npy that can be served: {error}") from error


DECODERS: Mapping[str, Decode] = {"int64": decode_integer, "npy": decode_npy, "bytes": bytes}
"""What the last part of an extension stands for → decoder of members."""


def split_alternatives(fields: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the extensions of each field, in lower case. Raises `ValueError`."""
    split = {name: tuple(text.lower().split(";")) for name, text in fields.items()}
    for name, extensions in split.items():
        if not all(extensions):
            raise ValueError(f"{name!r} has an empty extension; name them as in 'jpg;png'")
        if len(set(map(kind_of, extensions))) > 1:
            raise ValueError(f"{name!r} has extensions of several types; make fields of them")
    return split
