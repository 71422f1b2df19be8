"""The base of sources whose samples are at known offsets of files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed_server.sources.base import Indices, Provenance, Source
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import hash_stamps


class LocatedSource(Source):
    """A source of samples in files, numbered file by file, that ranges of the files are read of."""

    def locate(
        self,
        ranges: RangeReader,
        counts: Iterable[int],
        begins: npt.NDArray[Any],
    ) -> None:
        """Takes the number of samples in each file, and the offset of each sample."""
        self._ranges, self.files = ranges, ranges.files
        self._first = np.cumsum([0, *counts], dtype=np.int64)
        self._begins = begins
        self.stamp = hash_stamps(file.stamp for file in self.files)

    def __len__(self) -> int:
        return int(self._first[-1])

    def provenance(self, index: int) -> Provenance:
        return Provenance(self.files[self.file_of(index)].path, int(self._begins[index]))

    def files_of(self, indices: Indices) -> Indices:
        """Returns the number of each sample's file."""
        return np.searchsorted(self._first, indices, side="right").astype(np.int64) - 1

    def file_of(self, index: int) -> int:
        return int(np.searchsorted(self._first, index, side="right")) - 1

    def close(self) -> None:
        self._ranges.close()
