"""Reads of byte ranges: neighbours at once, with retries, and never from a changed file."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_server.storage.faults import retry_faults
from infeed_server.storage.files import changed_error, is_remote, stat_file
from infeed_server.storage.handles import FileHandle, FileHandlePool
from infeed_server.storage.stamp import FileStamp, StoredFile
from infeed_server.storage.stores import ObjectRead, RangeRequests, store_of

Int64 = npt.NDArray[np.int64]

_MAX_GAP = 16 << 10
"""Largest gap in bytes between ranges of a local file that costs less to read than a call."""

_MAX_READ = 8 << 20
"""Bytes read at once, unless one range is longer."""


@dataclass
class _Group:
    """Ranges of one file read at once."""

    file: int
    listed: StoredFile
    begin: int
    end: int
    slots: list[int]

    @property
    def size(self) -> int:
        return self.end - self.begin


_Put = Callable[[_Group, bytes], None]
"""A function that takes the bytes of a group."""


class RangeReader:
    """Reads ranges of files that have not changed since they were listed. Thread-safe."""

    def __init__(
        self,
        files: Sequence[StoredFile],
        threads: int = 1,
        *,
        keep_open: bool = True,
    ) -> None:
        """Reads local files in `threads` threads per call, to hide latency, and objects with a
        request for each range. Without `keep_open`, each read opens its file and so notices a
        replaced one."""
        self.files = files
        self._keep_open = keep_open
        self._handles = FileHandlePool(self._open)
        self._requests = RangeRequests()
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "infeed-reads") if threads > 1 else None

    def read(self, files: Int64, offsets: Int64, sizes: Int64) -> npt.NDArray[np.object_]:
        """Returns the bytes of each range, by number of its file, offset and size. Raises
        `SourceError` for a file that changed, or cannot be read."""
        contents = np.empty(len(files), object)

        def put(group: _Group, data: bytes) -> None:
            for slot in group.slots:
                begin, size = int(offsets[slot]) - group.begin, int(sizes[slot])
                contents[slot] = data if len(group.slots) == 1 else data[begin : begin + size]

        groups = _grouped(self.files, files, offsets, sizes)
        for scheme, some in groupby(groups, lambda group: group.listed.path.rpartition("://")[0]):
            (self._read_objects if scheme else self._read_local)([*some], put)
        return contents

    def check(self, file: int) -> None:
        """Raises `SourceError` if a file has changed, `OSError` if it cannot be checked."""
        listed = self.files[file]
        self._check_stamp(listed, stat_file(listed.path))

    def close(self) -> None:
        """Ends the reading threads and the requests; even object reads in progress fail."""
        self._requests.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _read_local(self, groups: Sequence[_Group], put: _Put) -> None:
        def read(some: Sequence[_Group]) -> None:
            for group in some:
                put(group, retry_faults(partial(self._read_group, group), group.listed.path))

        if self._pool is None:
            read(groups)
            return
        # Few handovers between threads: each costs about as much as a read.
        shares = [groups[first :: self._threads] for first in range(self._threads)]
        try:
            reads = self._pool.map(read, filter(None, shares))
        except RuntimeError as error:
            path = groups[0].listed.path
            raise SourceError(f"{path}: the source is closed", file=path) from error
        list(reads)  # raises the first error

    def _read_group(self, group: _Group) -> bytes:
        listed, size = group.listed, group.size
        opened = self._handles.borrow(group.file) if self._keep_open else FileHandle(listed.path)
        with opened as handle:
            data, stamp = handle.read(group.begin, size), handle.stamp()
        # An overwritten file has another time, even if the bytes read are intact.
        self._check_stamp(listed, stamp)
        if len(data) < size:
            raise OSError(errno.EIO, f"only {len(data)} of {size} bytes are read")
        return data

    def _read_objects(self, groups: Sequence[_Group], put: _Put) -> None:
        left = groups

        def read() -> None:
            nonlocal left
            reads = [ObjectRead(group.listed, group.begin, group.size) for group in left]
            results = self._requests.read(reads)
            failed = []
            for group, result in zip(left, results, strict=True):
                if isinstance(result, OSError) and result.errno == errno.ESTALE:
                    raise changed_error(group.listed.path, result.strerror or "") from result
                if isinstance(result, OSError):
                    failed.append((group, result))
                else:
                    put(group, result)
            left = [group for group, _ in failed]
            if failed:
                raise failed[0][1]

        retry_faults(read, groups[0].listed.path)

    def _open(self, number: int) -> FileHandle:
        listed = self.files[number]
        handle = FileHandle(listed.path)
        self._check_stamp(listed, handle.stamp())
        return handle

    def _check_stamp(self, listed: StoredFile, stamp: FileStamp) -> None:
        if stamp != listed.stamp:
            raise changed_error(listed.path, listed.stamp.difference(stamp))


def _grouped(
    all_files: Sequence[StoredFile], files: Int64, offsets: Int64, sizes: Int64
) -> list[_Group]:
    """Groups ranges of a file that lie close together, up to a total number of bytes."""
    groups: list[_Group] = []
    last: _Group | None = None
    for slot in np.lexsort((offsets, files)).tolist():
        file, begin = int(files[slot]), int(offsets[slot])
        end = begin + int(sizes[slot])
        if last is None or file != last.file:
            listed = all_files[file]
            max_gap = _MAX_GAP
            if is_remote(listed.path):
                max_gap = store_of(listed.path).max_gap()
        elif begin - last.end <= max_gap and max(end, last.end) - last.begin <= _MAX_READ:
            last.slots.append(slot)
            last.end = max(end, last.end)
            continue
        groups.append(last := _Group(file, listed, begin, end, [slot]))
    return groups
