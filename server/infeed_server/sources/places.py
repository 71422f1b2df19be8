"""The places of samples: the file and the offset of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SampleError
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile, hash_stamps

Indices: TypeAlias = npt.NDArray[np.int64]
"""Indices of samples in a source, one per slot."""

Keys: TypeAlias = npt.NDArray[np.int64]
"""Keys of samples, int64[n, 2]."""


_MAX_EXAMPLES = 8
"""Number of samples read, spread over a source, to find its fields."""


def example_indices(length: int) -> list[int]:
    """Returns the indices of elements to look at, from the first to the last."""
    count = min(_MAX_EXAMPLES, length)
    return [number * (length - 1) // max(1, count - 1) for number in range(count)]


@dataclass(frozen=True)
class Provenance:
    """The location of a sample: its file and, in a file of many samples, the offset in bytes."""

    file: str
    offset: int | None = None

    def __str__(self) -> str:
        return self.file if self.offset is None else f"{self.file} at byte {self.offset}"


class Places(Protocol):
    """The location of each sample of a source."""

    stamp: str = ""
    """A hash of the files' sizes and times, if the source's identity does not cover them."""

    def __len__(self) -> int: ...

    def provenance(self, index: int) -> Provenance:
        """Returns the location of a sample."""

    def samples_in(self, end: str) -> Iterator[range]:
        """Yields the samples in files whose paths end with these parts."""

    def close(self) -> None:
        """Stops reading. A read in progress may end with a `SourceError`."""


def sample_error(
    places: Places, index: int, problem: str, place: object = None, **where: Any
) -> SampleError:
    """Returns the error for a bad sample; `place` is where it is, in words."""
    found = places.provenance(index)
    text = f"cannot be read: {place or found}: {problem}"
    return SampleError(text, sample=index, file=found.file, offset=found.offset, **where)


class OnePlace(Places):
    """Samples that share one place, such as the user's object."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count

    def __len__(self) -> int:
        return self._count

    def provenance(self, index: int) -> Provenance:  # noqa: ARG002
        return Provenance(self._name)

    def samples_in(self, end: str) -> Iterator[range]:  # noqa: ARG002
        return iter(())

    def close(self) -> None:
        """Does nothing."""


class InFiles(Places):
    """Samples in files, numbered file by file."""

    def __init__(self, files: Sequence[StoredFile], counts: Iterable[int]) -> None:
        """Takes the number of samples in each file."""
        self.files = files
        self.first: Indices = np.cumsum([0, *counts], dtype=np.int64)
        """The index of each file's first sample, then the number of samples."""
        self.stamp = hash_stamps(file.stamp for file in files)

    def __len__(self) -> int:
        return int(self.first[-1])

    def provenance(self, index: int) -> Provenance:
        return Provenance(self.files[self.file_of(index)].path)

    def samples_in(self, end: str) -> Iterator[range]:
        for number, file in enumerate(self.files):
            if f"/{file.path}".endswith(f"/{end}"):
                yield range(*self.first[number : number + 2].tolist())

    def close(self) -> None:
        """Does nothing."""

    def files_of(self, indices: Indices) -> Indices:
        """Returns the number of each sample's file."""
        return np.searchsorted(self.first, indices, side="right").astype(np.int64) - 1

    def file_of(self, index: int) -> int:
        return int(np.searchsorted(self.first, index, side="right")) - 1


class Located(InFiles):
    """Samples at known offsets, read as ranges of the files."""

    def __init__(
        self, files: Sequence[StoredFile], counts: Iterable[int], begins: npt.NDArray[Any]
    ) -> None:
        """Takes the number of samples in each file, and the offset of each sample."""
        super().__init__(files, counts)
        self.ranges, self.begins = RangeReader(files), begins

    def provenance(self, index: int) -> Provenance:
        return Provenance(self.files[self.file_of(index)].path, int(self.begins[index]))

    def read(self, indices: Indices, sizes: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """Returns the bytes of samples of these sizes. Raises `SourceError` for a file that
        changed, or cannot be read."""
        begins = self.begins[indices].astype(np.int64)
        return self.ranges.read(self.files_of(indices), begins, sizes.astype(np.int64))

    def close(self) -> None:
        self.ranges.close()
