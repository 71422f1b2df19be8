"""Records: the fields of one sample as bytes, as the cache stores them.

    flags, one byte for each field; then for each field: [length, 4 bytes LE] data

Numbers are stored in the machine's byte order. The length precedes byte strings, and compressed
data (flag 1). Byte strings are stored as their lengths, 4 bytes each, and then their bytes.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

_LENGTH = struct.Struct("<I")
_COMPRESSED = 1

_TRIAL_SAMPLES, _TRIAL_BYTES = 64, 4096
_MAX_RATIO = 0.5
"""A field is compressed if that shrinks the first bytes of the first samples by this factor."""

Array = npt.NDArray[Any]
Columns = dict[str, Array]


@dataclass(frozen=True)
class RecordField:
    """A field with a fixed shape; the `dtype` object means byte strings."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @cached_property
    def is_bytes(self) -> bool:
        return self.dtype == object

    @cached_property
    def count(self) -> int:
        """The numbers or strings of a sample."""
        return math.prod(self.shape)

    @cached_property
    def size(self) -> int:
        """The bytes of a sample's numbers."""
        return self.count * self.dtype.itemsize


@dataclass
class _Trial:
    """The sizes of a field in the first samples."""

    samples: int = 0
    raw: int = 0
    compressed: int = 0

    def pays(self) -> bool:
        return self.compressed <= _MAX_RATIO * self.raw


@dataclass(frozen=True)
class RecordFormat:
    """Encodes and decodes records of samples with these fields. Thread-safe: two threads that add
    to a trial change no value, only which fields are compressed."""

    fields: Sequence[RecordField]
    _trials: Mapping[str, _Trial] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_trials", {one.name: _Trial() for one in self.fields})

    def encode(self, columns: Columns, row: int) -> bytes:
        """Returns the record of one row."""
        flags, parts = bytearray(), []
        for one in self.fields:
            data = _to_bytes(one, columns[one.name][row])
            packed = self._compress(one, data)
            flags.append(0 if packed is None else _COMPRESSED)
            data = data if packed is None else packed
            if one.is_bytes or packed is not None:
                parts.append(_LENGTH.pack(len(data)))
            parts.append(data)
        return b"".join((flags, *parts))

    def decode(self, records: Sequence[bytes]) -> Columns:
        """Returns the rows of these records. Raises `ValueError` for bytes that are not a
        record."""
        try:
            rows = [self._split(record) for record in records]
            return {
                one.name: _column(one, [row[number] for row in rows])
                for number, one in enumerate(self.fields)
            }
        except (ValueError, IndexError, struct.error, zlib.error) as error:
            raise ValueError(f"not a record of {self.fields}: {error}") from error

    def _split(self, record: bytes) -> list[memoryview | bytes]:
        """Returns the data of each field."""
        view, offset, parts = memoryview(record), len(self.fields), []
        for flag, one in zip(record, self.fields, strict=False):
            size = one.size
            if one.is_bytes or flag == _COMPRESSED:
                (size,) = _LENGTH.unpack_from(record, offset)
                offset += _LENGTH.size
            data = view[offset : offset + size]
            offset += size
            parts.append(zlib.decompress(data) if flag == _COMPRESSED else data)
        if offset != len(record):
            raise ValueError(f"it has {len(record)} bytes instead of {offset}")
        return parts

    def _compress(self, one: RecordField, data: bytes) -> bytes | None:
        """Returns the compressed data if compression paid off in the field's trial."""
        trial = self._trials[one.name]
        if trial.samples < _TRIAL_SAMPLES:
            tried = data[:_TRIAL_BYTES]
            trial.samples += 1
            trial.raw += len(tried)
            trial.compressed += len(zlib.compress(tried, 1))
            return None
        packed = zlib.compress(data, 1) if trial.pays() else None
        return packed if packed and len(packed) <= _MAX_RATIO * len(data) else None


def _to_bytes(one: RecordField, value: Any) -> bytes:
    if not one.is_bytes:
        return np.asarray(value, one.dtype).tobytes()
    strings = [bytes(item) for item in np.asarray(value, object).reshape(-1)]
    return b"".join((np.array([len(item) for item in strings], "<u4").tobytes(), *strings))


def _column(one: RecordField, parts: Sequence[memoryview | bytes]) -> Array:
    shape = (len(parts), *one.shape)
    if one.is_bytes:
        strings = [string for part in parts for string in _strings(one, part)]
        column = np.empty(len(strings), object)
        column[:] = strings
        return column.reshape(shape)
    if sizes := {len(part) for part in parts} - {one.size}:
        raise ValueError(f"field {one.name!r} has {max(sizes)} bytes instead of {one.size}")
    return np.frombuffer(b"".join(parts), one.dtype).reshape(shape)


def _strings(one: RecordField, data: memoryview | bytes) -> list[bytes]:
    lengths = 4 * one.count
    ends = np.cumsum(np.frombuffer(data[:lengths], "<u4"), dtype=np.int64) + lengths
    bounds = [lengths, *ends.tolist()]
    if bounds[-1] != len(data):
        raise ValueError(f"field {one.name!r} has {len(data)} bytes instead of {bounds[-1]}")
    return [bytes(data[begin:end]) for begin, end in pairwise(bounds)]
