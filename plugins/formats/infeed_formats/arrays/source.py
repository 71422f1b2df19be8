"""The `arrays` source: NumPy arrays whose first dimension counts the samples."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import tensorflow as tf
from pydantic import Field, field_serializer, field_validator

from infeed.shared.errors import SourceError
from infeed.shared.spec import Array
from infeed_formats.arrays.npy_files import StoredArray, open_npy, open_npz
from infeed_formats.values import UnfitError, check_data_type, to_value
from infeed_server.config.model import Finding
from infeed_server.sources.base import (
    Columns,
    IndexedDefinition,
    ProgressCallback,
    Source,
    find_missing,
    require_names,
)
from infeed_server.sources.places import Indices, OnePlace
from infeed_server.storage.files import PathString, expand_globs, is_remote

_IN_MEMORY = "<memory>"


class ArraysSource(IndexedDefinition):
    """Arrays of the same length; each becomes a field."""

    kind: ClassVar[str] = "arrays"

    arrays: PathString | dict[str, Any]
    """A `.npz`, with a field for each array; a `.npy`, as one field with the file's name; or `.npy`
    files by field name, in Python also arrays."""
    fields: Annotated[dict[str, str], Field(min_length=1)] | None = None
    """Array of each field, as in `{image: x_train, label: y_train}`; by default every array is a
    field."""

    @field_validator("arrays")
    @classmethod
    def _check(cls, value: str | dict[str, Any]) -> str | dict[str, Any]:
        if isinstance(value, str):
            return value
        if not value:
            raise ValueError("name at least one array")
        for name, item in value.items():
            if not isinstance(item, str | np.ndarray | Path):
                raise ValueError(f"{name!r} is neither the path of a .npy file nor a NumPy array")
        return {n: str(item) if isinstance(item, Path) else item for n, item in value.items()}

    @field_serializer("arrays")
    def _dump(self, value: str | dict[str, Any]) -> Any:
        if isinstance(value, str):
            return value
        return {n: v if isinstance(v, str) else f"{v.dtype}{v.shape}" for n, v in value.items()}

    def check(self) -> Iterator[Finding]:
        named = {"": self.arrays} if isinstance(self.arrays, str) else self.arrays
        for name, path in named.items():
            if isinstance(path, str) and not is_remote(path):
                key = ("arrays", name) if name else ("arrays",)
                yield from find_missing(key, partial(_expand_one, path))

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> ArrayReader:
        """Opens the arrays and hashes or verifies their files. Raises `SourceError`."""
        arrays = self._open(progress)
        fields = self.fields or {name: name for name in arrays}
        require_names(fields.values(), sorted(arrays), "source.arrays", "array")
        return ArrayReader({field: arrays[name] for field, name in fields.items()})

    def _open(self, progress: ProgressCallback | None) -> dict[str, StoredArray]:
        """Returns the opened arrays by name."""
        if isinstance(self.arrays, dict):
            return {name: _open_one(name, value, progress) for name, value in self.arrays.items()}
        path = _expand_one(self.arrays)
        if path.endswith(".npz"):
            return open_npz(path)
        return {Path(path).stem: open_npy(path, progress)}


class ArrayReader(Source):
    """Reads rows of arrays by index."""

    def __init__(self, stored: Mapping[str, StoredArray]) -> None:
        if not stored:
            raise SourceError("no array in the source")
        self.stored = dict(sorted(stored.items()))
        columns = {name: _spec(name, stored) for name, stored in self.stored.items()}
        lengths = {name: len(stored.array) for name, stored in self.stored.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            counts = Counter(lengths.values())
            most = max(counts, key=lambda length: (counts[length], length))
            some = ", ".join(f"{name}: {name}" for name in lengths if lengths[name] == most)
            raise SourceError(
                f"the arrays differ in their first dimension: {listed}; choose arrays of one "
                f"length, as in fields: {{{some}}}"
            )
        first = next(iter(self.stored.values()))
        if not len(first.array):
            raise SourceError(f"the arrays {', '.join(lengths)} are empty", file=first.file)
        files = ", ".join(sorted({stored.file for stored in self.stored.values()}))
        digest = hashlib.sha256(b"arrays\n")
        for name, one in self.stored.items():
            shape = f"{one.array.dtype.str} {one.array.shape}"
            digest.update(f"{name} {shape} {one.content}\n".encode())
        super().__init__(OnePlace(files, len(first.array)), columns, digest.hexdigest())

    def read(self, indices: Indices) -> Columns:
        """Gathers the rows. Raises `SourceError` if a mapped file has changed."""
        return {name: to_wire(stored.rows(indices)) for name, stored in self.stored.items()}

    def known_fields(self) -> Mapping[str, Array]:
        return {name: one.array for name, one in self.stored.items() if one.array.ndim == 1}

    def check_files(self) -> None:
        """Raises `SourceError` if a mapped file has changed."""
        for mapped in {stored.mapped for stored in self.stored.values() if stored.mapped}:
            mapped.check()


def _expand_one(pattern: str) -> str:
    paths = expand_globs([pattern])
    if len(paths) > 1:
        raise SourceError(
            f"{pattern!r} matches {len(paths)} files; name one, or one for each field"
        )
    if not paths[0].endswith((".npy", ".npz")):
        raise SourceError(f"{paths[0]!r} is neither .npy nor .npz", file=paths[0])
    return paths[0]


def _open_one(name: str, value: str | Array, progress: ProgressCallback | None) -> StoredArray:
    if isinstance(value, str):
        path = _expand_one(value)
        if not path.endswith(".npy"):
            raise SourceError(f"{path!r} is not a .npy file", at=("arrays", name), file=path)
        return open_npy(path, progress)
    array = value
    if array.dtype.hasobject:
        try:
            array = to_value(array).array
        except UnfitError as error:
            raise SourceError(f"the array {name!r} {error}") from None
        content = b"".join(b"%d:%b" % (len(item), item) for item in array.flat)
    else:
        content = array.tobytes()
    return StoredArray(array, _IN_MEMORY, hashlib.sha256(content).hexdigest())


def _spec(name: str, stored: StoredArray) -> tf.TensorSpec:
    array = stored.array
    if not array.ndim:
        raise SourceError(
            f"the array {name!r} of {stored.file} is a single value; it needs a first dimension "
            "that counts the samples",
            file=stored.file,
        )
    if array.dtype.kind in "SUO":
        return tf.TensorSpec(array.shape[1:], tf.string)
    try:
        check_data_type(array)
    except UnfitError as error:
        text = f"the array {name!r} of {stored.file} {error}"
        raise SourceError(text, file=stored.file) from None
    return tf.TensorSpec(array.shape[1:], tf.as_dtype(array.dtype.newbyteorder("=")))


def to_wire(rows: Array) -> Array:
    """Returns rows ready to send: contiguous, in native byte order, strings as `bytes`."""
    kind = rows.dtype.kind
    if kind == "U":
        rows = np.char.encode(rows, "utf-8")
    if kind in "SU":
        return np.ascontiguousarray(rows.astype(object))
    return np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
