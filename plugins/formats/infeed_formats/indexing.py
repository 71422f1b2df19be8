"""Indexing of data files: each file's index from the cache or a scan of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from infeed.shared.errors import SourceError
from infeed_formats.index_cache import Arrays, Index, load_index, store_index
from infeed_server.sources.base import ProgressCallback
from infeed_server.storage.files import read_stamp, reading
from infeed_server.storage.handles import FileHandle
from infeed_server.storage.stamp import StoredFile

_PROGRESS_STEP = 8 << 20
"""Bytes between two calls of the progress callback."""


_Index_co = TypeVar("_Index_co", covariant=True)


class IndexFormat(Protocol, Generic[_Index_co]):
    """The indexing of one file format. An index is a named tuple of arrays, or None."""

    version: str
    """A text unique to the format; it changes whenever the index's arrays do."""

    checked: bool
    """Whether reads detect a record that the index does not match."""

    def scan(
        self, handle: FileHandle, path: str, size: int, on_position: Callable[[int], None]
    ) -> _Index_co:
        """Returns the index of a file and calls `on_position` with the bytes scanned. Raises
        `SourceError`."""

    def decode(self, arrays: Arrays, size: int) -> _Index_co | None:
        """Returns the stored index of a file with `size` bytes. Returns None or raises for arrays
        that are no such index or are incomplete."""


def index_files(
    files: Sequence[StoredFile],
    index_format: IndexFormat[Index],
    directory: str | None = None,
    progress: ProgressCallback | None = None,
    *,
    rebuild: bool = False,
) -> Iterator[tuple[StoredFile, Index, bool]]:
    """Yields each file with its index and whether the cache had it. `directory` replaces the data's
    own folder as the cache. Raises `SourceError`."""
    ends = np.cumsum([file.stamp.size for file in files], dtype=np.int64).tolist()
    report = _limited(progress, ends[-1])
    for file, end in zip(files, ends, strict=True):
        path, stamp = file
        version, decode = index_format.version, partial(index_format.decode, size=stamp.size)
        index = None
        if not rebuild:
            checked = index_format.checked
            index = load_index(path, stamp, version, decode, directory, checked=checked)
        cached = index is not None
        if index is None:
            done = partial(report, end - stamp.size)
            with reading(path), FileHandle(path) as handle:
                index = index_format.scan(handle, path, stamp.size, done)
            if read_stamp(path) != stamp:
                text = f"{path} changed while it was indexed; is it being written?"
                raise SourceError(text, file=path)
            store_index(path, stamp, version, to_arrays(index), directory)
        yield file, index, cached
        report(end, 0, at_end=True)


def to_arrays(index: Any) -> Arrays:
    """Returns the arrays that an index stores."""
    return {name: array for name, array in index._asdict().items() if array is not None}


def _limited(progress: ProgressCallback | None, total: int) -> Callable[..., None]:
    """Returns a function that reports the bytes done, at most once per step."""
    reported = 0

    def report(begin: int, position: int, *, at_end: bool = False) -> None:
        nonlocal reported
        done = begin + position
        if progress is not None and (at_end or done - reported >= _PROGRESS_STEP):
            reported = done
            progress(done, total)

    return report
