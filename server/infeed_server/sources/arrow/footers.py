"""Footers of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_server.sources.arrow.fields import decoding, pyarrow
from infeed_server.storage.files import damaged_error
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile

_MAGIC = b"PAR1"
_TAIL = 8
"""Bytes behind the footer: its length, and the magic."""
_FIRST_READ = 64 << 10
"""Bytes of the end of a file that are read at once: most footers."""
_FILES_AT_ONCE = 256


class Footer(NamedTuple):
    """The footer of a file: its bytes, and what PyArrow made of them."""

    content: bytes
    metadata: Any


def read_footers(files: Sequence[StoredFile], ranges: RangeReader) -> Iterator[Footer]:
    """Yields the footer of each file, read at the same time from objects. Raises `SourceError`."""
    sizes = np.array([file.stamp.size for file in files], np.int64)
    for first in range(0, len(files), _FILES_AT_ONCE):
        part = np.arange(first, min(first + _FILES_AT_ONCE, len(files)))
        ends = _read_ends(part, sizes, np.full(len(part), _FIRST_READ), ranges)
        lengths = [
            _footer_bytes(files[file], end) for file, end in zip(part.tolist(), ends, strict=True)
        ]
        long = np.flatnonzero(np.array(lengths) > _FIRST_READ)
        ends[long] = _read_ends(part[long], sizes, np.array(lengths)[long], ranges)
        for file, end, length in zip(part.tolist(), ends, lengths, strict=True):
            yield _parse(files[file], end[-length:])


def _read_ends(
    part: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    ranges: RangeReader,
) -> npt.NDArray[np.object_]:
    lengths = np.minimum(lengths, sizes[part])
    return ranges.read(part, sizes[part] - lengths, lengths)


def _footer_bytes(file: StoredFile, end: bytes) -> int:
    """Returns the bytes of a footer, with what follows it."""
    if end[-4:] != _MAGIC:
        problem = "is encrypted; write it without encryption"
        if end[-4:] != b"PARE":
            problem = "is truncated, or no Parquet file: it does not end with PAR1; write it again"
        raise SourceError(f"{file.path} {problem}", file=file.path)
    length = int.from_bytes(end[-_TAIL:-4], "little") + _TAIL
    if length + len(_MAGIC) > file.stamp.size:
        problem = f"it has {length} bytes of the {file.stamp.size} of the file"
        raise damaged_error(file.path, f": its footer cannot be read: {problem}")
    return length


def _parse(file: StoredFile, content: bytes) -> Footer:
    arrow = pyarrow()
    with decoding(file.path, "its footer"):
        # The footer is at the end of a file, whatever precedes it.
        return Footer(content, arrow.parquet.read_metadata(arrow.BufferReader(_MAGIC + content)))
