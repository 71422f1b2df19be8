"""The bases of sources of files that have a known number of samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed_server.sources.base import Indices, Provenance, Source
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile, hash_stamps


class FilesSource(Source):
    """A source of samples in files, numbered file by file."""

    files: Sequence[StoredFile]
    first: Indices
    """The index of each file's first sample, then the number of samples."""

    def number(self, files: Sequence[StoredFile], counts: Iterable[int]) -> None:
        """Takes the files, and the number of samples in each."""
        self.files = files
        self.first = np.cumsum([0, *counts], dtype=np.int64)
        self.stamp = hash_stamps(file.stamp for file in files)

    def __len__(self) -> int:
        return int(self.first[-1])

    def provenance(self, index: int) -> Provenance:
        return Provenance(self.files[self.file_of(index)].path)

    def samples_in(self, end: str) -> Iterator[range]:
        for number, file in enumerate(self.files):
            if f"/{file.path}".endswith(f"/{end}"):
                yield range(*self.first[number : number + 2].tolist())

    def files_of(self, indices: Indices) -> Indices:
        """Returns the number of each sample's file."""
        return np.searchsorted(self.first, indices, side="right").astype(np.int64) - 1

    def file_of(self, index: int) -> int:
        return int(np.searchsorted(self.first, index, side="right")) - 1


class LocatedSource(FilesSource):
    """A source of samples at known offsets, of which ranges of the files are read."""

    ranges: RangeReader
    begins: npt.NDArray[Any]
    """The offset of each sample in its file."""

    def locate(self, ranges: RangeReader, counts: Iterable[int], begins: npt.NDArray[Any]) -> None:
        """Takes the number of samples in each file, and the offset of each sample."""
        self.number(ranges.files, counts)
        self.ranges, self.begins = ranges, begins

    def provenance(self, index: int) -> Provenance:
        return Provenance(self.files[self.file_of(index)].path, int(self.begins[index]))

    def close(self) -> None:
        self.ranges.close()
