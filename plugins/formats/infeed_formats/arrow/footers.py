"""Footers of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_formats.arrow.fields import decoding, pyarrow
from infeed_server.storage.files import damaged_error
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile

_MAGIC = b"PAR1"
_TAIL = 8
"""Bytes after the footer: its length and the magic."""
_FIRST_READ = 64 << 10
"""Bytes at a file's end that the first read returns, enough for most footers."""
_FILES_AT_ONCE = 64


def read_footers(ranges: RangeReader) -> Iterator[tuple[bytes, Any]]:
    """Yields the bytes of each file's footer, and PyArrow's parse of them; reads footers
    concurrently. Raises `SourceError`."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        ends = pool.map(partial(_read_end, ranges), range(len(ranges.files)))
        for file, end in zip(ranges.files, ends, strict=True):
            yield _parse(file, end)


def _read_end(ranges: RangeReader, number: int, length: int = _FIRST_READ) -> bytes:
    """Reads a file from its footer to the end."""
    file = ranges.files[number]
    length = min(length, file.stamp.size)
    place = number, file.stamp.size - length, length
    (end,) = ranges.read(*(np.array([part], np.int64) for part in place)).tolist()
    needed = _footer_bytes(file, end)
    return end[-needed:] if needed <= length else _read_end(ranges, number, needed)


def _footer_bytes(file: StoredFile, end: bytes) -> int:
    """Returns the bytes from the footer to the end."""
    if end[-4:] != _MAGIC:
        problem = "is encrypted; write it without encryption"
        if end[-4:] != b"PARE":
            problem = "is truncated or not Parquet: it does not end with PAR1; write it again"
        raise SourceError(f"{file.path} {problem}", file=file.path)
    length = int.from_bytes(end[-_TAIL:-4], "little") + _TAIL
    if length + len(_MAGIC) > file.stamp.size:
        problem = f"it states {length} bytes, but the file has {file.stamp.size}"
        raise damaged_error(file.path, f": its footer cannot be read: {problem}")
    return length


def _parse(file: StoredFile, content: bytes) -> tuple[bytes, Any]:
    arrow = pyarrow()
    with decoding(file.path, "its footer"):
        # PyArrow expects a whole file, with the footer at its end.
        return content, arrow.parquet.read_metadata(arrow.BufferReader(_MAGIC + content))
