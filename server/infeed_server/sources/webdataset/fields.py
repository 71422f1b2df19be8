"""The fields of a sample in a tar: members by their extensions, and the values in their bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.lib import format as npy

from infeed.shared.errors import ConfigError
from infeed.shared.spec import Array
from infeed_server.sources.arrays.source import to_wire
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


class FieldDecoder:
    """Decodes the bytes of one field's members."""

    def __init__(self, extensions: Sequence[str], read_first: Callable[[], bytes]) -> None:
        """`read_first` returns a member, from which the type and shape of an npy are taken.
        Raises `ValueError`, also for such an array that cannot be served."""
        self.extensions = tuple(extensions)
        self._kind = kind_of(extensions[0])
        self.spec = tf.TensorSpec((), tf.int64 if self._kind == "int64" else tf.string)
        if self._kind == "npy":
            array = _load(read_first())
            self.spec = tf.TensorSpec(array.shape, tf.as_dtype(array.dtype.newbyteorder("=")))

    def decode(self, member: bytes) -> Any:
        """Returns the value of a member. Raises `ValueError` with what is wrong in it."""
        if self._kind == "bytes":
            return member
        if self._kind == "int64":
            return _integer(member)
        array = _load(member)
        dtype = array.dtype.newbyteorder("=")
        if (array.shape, dtype) != (tuple(self.spec.shape), self.spec.dtype.as_numpy_dtype):
            expected = f"{self.spec.dtype.name}{self.spec.shape.as_list()}"
            raise ValueError(f"it is {dtype}{[*array.shape]}, but the first one {expected}")
        return array

    def column(self, values: Sequence[Any]) -> Array:
        """Returns values as a column."""
        if self._kind == "int64":
            return np.array(values, np.int64)
        if self._kind == "npy" and values:
            return to_wire(np.stack(values))
        column = np.empty([len(values), *self.spec.shape], self.spec.dtype.as_numpy_dtype)
        if values:
            column[:] = values
        return column


def split_alternatives(fields: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the extensions of each field, in lower case. Raises `ValueError`."""
    split = {name: tuple(text.lower().split(";")) for name, text in fields.items()}
    for name, extensions in split.items():
        if not all(extensions):
            raise ValueError(f"{name!r} has an empty extension; name them as in 'jpg;png'")
        if len(set(map(kind_of, extensions))) > 1:
            raise ValueError(f"{name!r} has extensions of several types; make fields of them")
    return split


def _integer(member: bytes) -> int:
    value = int(member) if _INTEGER.fullmatch(member) else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"it is no int64: {member[:20]!r}")
    return value


def _load(member: bytes) -> Array:
    """Returns the array in an npy, without a copy, and without memory for a damaged shape."""
    file = io.BytesIO(member)
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        check_data_type(np.empty(0, dtype))
        values = np.frombuffer(member, dtype, offset=file.tell())
        return values.reshape(shape, order="F" if fortran else "C")
    except Exception as error:  # NumPy raises many for a byte that changed
        raise ValueError(f"it is no npy that can be served: {error}") from error
