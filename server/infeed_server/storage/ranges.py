"""Reads of byte ranges of files: near ones at once, with retries, and never of a changed file."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_server.storage import object_store
from infeed_server.storage.faults import retry_faults
from infeed_server.storage.files import changed_error, is_remote, stat_file
from infeed_server.storage.handles import FileHandle, FileHandlePool
from infeed_server.storage.object_errors import ChangedObjectError
from infeed_server.storage.object_store import ObjectRead
from infeed_server.storage.read_cache import read_cache
from infeed_server.storage.stamp import FileStamp, StoredFile

Int64 = npt.NDArray[np.int64]

_MAX_GAP = 16 << 10
"""Bytes between two ranges of a local file. A smaller gap costs less to read than another call."""

_MAX_READ = 8 << 20
"""Bytes read at once, unless one range is longer."""


class _Group(NamedTuple):
    """Ranges of one file that are read at once."""

    file: int
    begin: int
    end: int
    slots: list[int]


class RangeReader:
    """Reads ranges of files that are as they were listed. Thread-safe."""

    def __init__(
        self,
        files: Sequence[StoredFile],
        since: str = "the server listed it",
        threads: int = 1,
        *,
        keep_open: bool = True,
    ) -> None:
        """Reads local files in `threads` threads per call, to hide their latency, and objects with
        as many requests as there are ranges. `since` says in errors when a file was as it is
        expected. Without `keep_open`, each read opens its file, and so notices one that took its
        path."""
        self.files = files
        self._since = since
        self._keep_open = keep_open
        self._handles = FileHandlePool(self._open)
        self._cache = read_cache(files)
        self._pool = ThreadPoolExecutor(threads, "infeed-reads") if threads > 1 else None

    def read(self, files: Int64, offsets: Int64, sizes: Int64) -> npt.NDArray[np.object_]:
        """Returns the bytes of each range, by number of its file, offset and size. Raises
        `SourceError` for a file that changed, or cannot be read."""
        contents = np.empty(len(files), object)
        remote = np.array([is_remote(self.files[file].path) for file in files.tolist()], bool)
        for part, gap, read in (
            (~remote, _MAX_GAP, self._read_local),
            (remote, self._object_gap() if remote.any() else 0, self._read_objects),
        ):
            if len(slots := np.flatnonzero(part)):
                groups = list(_grouped(files, offsets, sizes, slots, gap))
                read(groups, offsets, sizes, contents)
        return contents

    def _object_gap(self) -> int:
        return 0 if self._cache else object_store.max_gap()

    def check(self, file: int) -> None:
        """Raises `SourceError` if a file has changed, `OSError` if it cannot be looked at."""
        listed = self.files[file]
        self._check_stamp(listed, stat_file(listed.path))

    def close(self) -> None:
        """Ends the reading threads and the cache; a read in progress completes, later ones fail."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        if self._cache is not None:
            self._cache.close()

    def _read_local(
        self,
        groups: Sequence[_Group],
        offsets: Int64,
        sizes: Int64,
        contents: npt.NDArray[np.object_],
    ) -> None:
        def read(group: _Group) -> None:
            path = self.files[group.file].path
            data = retry_faults(partial(self._read_group, group), path)
            _split(data, group, offsets, sizes, contents)

        if self._pool is None:
            for group in groups:
                read(group)
            return
        try:
            reads = self._pool.map(read, groups)
        except RuntimeError as error:
            path = self.files[groups[0].file].path
            raise SourceError(f"{path}: the source is closed", file=path) from error
        list(reads)  # raises the first error

    def _read_group(self, group: _Group) -> bytes:
        listed, size = self.files[group.file], group.end - group.begin
        if self._keep_open:
            with self._handles.borrow(group.file) as handle:
                data, stamp = handle.read(group.begin, size), handle.stamp()
        else:
            with FileHandle(listed.path) as handle:
                data, stamp = handle.read(group.begin, size), handle.stamp()
        # A file that was written over has another time, even if what was read is all right.
        self._check_stamp(listed, stamp)
        if len(data) < size:
            raise OSError(errno.EIO, f"only {len(data)} of {size} bytes are read")
        return data

    def _read_objects(
        self,
        groups: Sequence[_Group],
        offsets: Int64,
        sizes: Int64,
        contents: npt.NDArray[np.object_],
    ) -> None:
        left = list(groups)

        def read() -> None:
            if self._cache is not None:
                results = self._cache.read([(g.file, g.begin, g.end - g.begin) for g in left])
            else:
                reads = [ObjectRead(self.files[g.file], g.begin, g.end - g.begin) for g in left]
                results = object_store.read_ranges(reads)
            failed = []
            for group, result in zip(left, results, strict=True):
                if isinstance(result, ChangedObjectError):
                    path = self.files[group.file].path
                    raise changed_error(path, self._since, result.strerror or "") from result
                if isinstance(result, OSError):
                    failed.append((group, result))
                else:
                    _split(result, group, offsets, sizes, contents)
            left[:] = [group for group, _ in failed]
            if failed:
                raise failed[0][1]

        retry_faults(read, self.files[groups[0].file].path)

    def _open(self, number: int) -> FileHandle:
        listed = self.files[number]
        handle = FileHandle(listed.path)
        self._check_stamp(listed, handle.stamp())
        return handle

    def _check_stamp(self, listed: StoredFile, stamp: FileStamp) -> None:
        if stamp != listed.stamp:
            raise changed_error(listed.path, self._since, listed.stamp.difference(stamp))


def _grouped(
    files: Int64, offsets: Int64, sizes: Int64, slots: Int64, max_gap: int
) -> Iterator[_Group]:
    """Yields the ranges in `slots` by file and offset: near to each other, and not too many bytes
    in total."""
    order = slots[np.lexsort((offsets[slots], files[slots]))]
    group: _Group | None = None
    for slot in order.tolist():
        file, begin = int(files[slot]), int(offsets[slot])
        end = begin + int(sizes[slot])
        if group is not None:
            is_near = file == group.file and begin - group.end <= max_gap
            if is_near and max(end, group.end) - group.begin <= _MAX_READ:
                group.slots.append(slot)
                group = group._replace(end=max(end, group.end))
                continue
            yield group
        group = _Group(file, begin, end, [slot])
    if group is not None:
        yield group


def _split(
    data: bytes,
    group: _Group,
    offsets: Int64,
    sizes: Int64,
    contents: npt.NDArray[np.object_],
) -> None:
    for slot in group.slots:
        begin = int(offsets[slot]) - group.begin
        size = int(sizes[slot])
        contents[slot] = data if len(group.slots) == 1 else data[begin : begin + size]
