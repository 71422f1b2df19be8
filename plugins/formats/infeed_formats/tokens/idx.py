"""Megatron's `.idx`: the place of each sequence of tokens in the `.bin` beside it.

MMIDIDX · version: uint64 LE · data type: uint8 · sequences, documents: uint64 · lengths: int32[] ·
pointers in bytes: int64[] · first sequences of documents: int64[] · modes: int8[], optional
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError

_HEADER = struct.Struct("<9sQBQQ")
_MAGIC = b"MMIDIDX\0\0"
_TYPES = ("uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16")
_DATA_TYPES = dict(enumerate(_TYPES, 1))


class TokenIndex(NamedTuple):
    """The sequences of a pair of files, in order."""

    dtype: np.dtype[Any]
    lengths: npt.NDArray[np.int32]
    """Tokens of each sequence."""
    pointers: npt.NDArray[np.int64]
    """The offset of each sequence in the `.bin`."""

    @property
    def is_contiguous(self) -> bool:
        """Whether each sequence begins where the one before it ends."""
        return bool((self.pointers[1:] == self._expected()[1:] + self.pointers[:1]).all())

    def _expected(self) -> npt.NDArray[np.int64]:
        """Returns the pointers of contiguous sequences that start at the first byte."""
        ends = np.cumsum(self.lengths, dtype=np.int64) * self.dtype.itemsize
        return ends - self.lengths.astype(np.int64) * self.dtype.itemsize

    def problem(self, bin_size: int) -> str:
        """Returns why a `.bin` of this size cannot hold the sequences; empty if it can."""
        if (self.lengths < 0).any():
            return f"the length of sequence {int(np.argmax(self.lengths < 0))} is negative"
        wrapped = self.pointers - self._expected()
        if wrapped.any() and not (wrapped & 0xFFFFFFFF).any():
            return "its pointers overflow int32, a defect of the tool that wrote it; write it again"
        ends = self.pointers + self.lengths.astype(np.int64) * self.dtype.itemsize
        outside = (self.pointers < 0) | (self.pointers > bin_size) | (ends > bin_size)
        if outside.any():
            number = int(np.argmax(outside))
            begin, end = int(self.pointers[number]), int(ends[number])
            return f"sequence {number} is at bytes {begin} to {end} of a .bin of {bin_size} bytes"
        return ""


def read_idx(content: bytes, path: str) -> TokenIndex:
    """Returns the index in an `.idx`. Raises `SourceError`."""

    def error(problem: str) -> SourceError:
        return SourceError(f"{path} is not an index of tokens: {problem}", file=path)

    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise error("it does not begin with MMIDIDX; preprocess_data.py of Megatron-LM writes it")
    _, version, code, sequences, documents = _HEADER.unpack_from(content)
    if version != 1:
        raise error(f"its version is {version}; known: 1")
    if code not in _DATA_TYPES:
        raise error(f"its data type is {code}; known: 1 to {len(_DATA_TYPES)}")
    expected = _HEADER.size + 12 * sequences + 8 * documents
    if len(content) not in (expected, expected + sequences):  # with a mode for each sequence
        raise error(f"it has {len(content)} bytes, not {expected}; is it truncated?")
    lengths = np.frombuffer(content, "<i4", sequences, _HEADER.size)
    pointers = np.frombuffer(content, "<i8", sequences, _HEADER.size + 4 * sequences)
    return TokenIndex(np.dtype(_DATA_TYPES[code]), lengths, pointers)
