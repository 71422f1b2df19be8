"""Open row group, which PyArrow reads from chunks fetched earlier, together with other groups'."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infeed_formats.arrow.fields import pyarrow
from infeed_server.storage.ranges import RangeReader


class _RecordedError(Exception):
    """Ends a read that only needed to be recorded."""


class OpenGroup(io.RawIOBase):
    """A row group as a file that PyArrow reads, from one thread.

    PyArrow's requests show where the chunks of columns are. Its description of a chunk would too,
    but ends the process if the footer is damaged.
    """

    def __init__(
        self, ranges: RangeReader, file: int, number: int, metadata: Any, leaves: Sequence[str]
    ) -> None:
        """Finds the `chunks` of the columns `leaves`, each as file, first byte and size, without
        reading them. Raises PyArrow's errors."""
        self.chunks: list[tuple[int, int, int]] = []
        self.contents: Mapping[int, bytes] | None = None
        """First byte → content of each chunk."""
        self._ranges, self._file, self._number = ranges, file, number
        self._size = ranges.files[file].stamp.size
        self._position = 0
        # A separate one, because several threads must not share a ParquetFile.
        self._parquet = pyarrow().parquet.ParquetFile(
            pyarrow().PythonFile(self, mode="r"),
            metadata=metadata,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        for leaf in leaves:
            try:
                self.read_columns([leaf])
            except _RecordedError:
                continue

    def read_columns(self, names: Sequence[str]) -> Any:
        """Returns columns as a table."""
        return self._parquet.read_row_group(self._number, columns=names, use_threads=False)

    def release(self) -> None:
        """Frees the memory, as Python cannot see that PyArrow's file and this one form a cycle."""
        self._parquet = self.contents = None

    def read(self, size: int = -1) -> bytes:
        begin = self._position
        size = max(0, min(size, self._size - begin))
        if self.contents is None:
            self.chunks.append((self._file, begin, size))
            raise _RecordedError
        self._position += size
        for start, content in self.contents.items():
            if start <= begin and begin + size <= start + len(content):
                return content[begin - start : begin - start + size]
        # Never seen, but a reader may request other bytes the second time.
        one = (np.array([number], np.int64) for number in (self._file, begin, size))
        return bytes(self._ranges.read(*one)[0])

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
