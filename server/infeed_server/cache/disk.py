"""Samples on disk: segments of records, and an index of their places, which processes share.

    DIRECTORY/index        one entry for each sample: see `_ENTRY`
    DIRECTORY/segment-N    records; one process writes it at a time

A record is written before its entry, and the hash in the entry covers the record and its index. So
a killed process, a full disk or a damaged block only costs a sample its place in the cache. Nothing
is truncated, and nothing is overwritten while an entry may refer to it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from infeed_server.cache.store import Store

log = logging.getLogger(__name__)

_ENTRY = struct.Struct("<IIQQ")
"""Segment, bytes and offset of a record, and its hash; all zeros: the sample is not cached."""

_ENTRY_TYPE = np.dtype([("segment", "<u4"), ("size", "<u4"), ("offset", "<u8"), ("hash", "<u8")])

_PART = 1 << 20
"""Entries read at a time: one call may not read the whole index."""

_STEP_DIVISOR = 128
"""A process reserves this part of the budget at a time; what it does not fill is used later."""


class DiskStore(Store):
    """The records of one directory, at most `budget` bytes over all its processes."""

    def __init__(self, directory: Path, samples: int, budget: int) -> None:
        """Raises `OSError`. The directory exists, and `lock` holds it."""
        self.directory = directory
        self._budget = budget
        self._step = max(1 << 16, budget // _STEP_DIVISOR)
        self._index = os.open(directory / "index", os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(self._index).st_size < samples * _ENTRY.size:
            os.ftruncate(self._index, samples * _ENTRY.size)  # sparse, so it takes no space yet
        self._segments: dict[int, int] = {}
        """Descriptors by number."""
        self._own: int | None = None
        """The segment that this process writes."""
        self._end = self._reserved = 0
        """Offsets in that segment: the end of its last record, and the limit for writing."""
        self._is_full = False
        self.held = ExitStack()
        """What `close` releases."""
        self._lock = threading.Lock()

    def get(self, index: int) -> bytes | None:
        """Reads a record and verifies its hash; returns None also if it cannot be read."""
        try:
            segment, size, offset, digest = self._entry(index)
            if not size:
                return None
            record = os.pread(self._descriptor(segment), size, offset)
        except (OSError, OverflowError, MemoryError, struct.error):  # also for a damaged entry
            return None
        return record if _digest(index, record) == digest else None

    def put(self, index: int, record: bytes) -> None:
        with self._lock:
            if self._is_full or (
                self._end + len(record) > self._reserved and not self._grow(record)
            ):
                return
            try:
                assert self._own is not None
                place = (self._own, len(record), self._end)
                _write(self._descriptor(self._own), record, self._end)
                self._end += len(record)
                entry = _ENTRY.pack(*place, _digest(index, record))
                _write(self._index, entry, index * _ENTRY.size)
            except OSError as error:
                self._stop(error)

    def takes(self, index: int) -> bool:  # noqa: ARG002
        return not self._is_full

    def verify(self) -> tuple[int, int]:
        """Reads all records; returns how many are kept, and how many damaged."""
        kept = damaged = 0
        for first, entries in self._entries():
            for number in np.flatnonzero(entries["size"]).tolist():
                kept += 1
                damaged += self.get(first + number) is None
        return kept, damaged

    @property
    def kept_samples(self) -> int:
        """Number of samples with an entry. Reads the whole index."""
        return sum(int(np.count_nonzero(entries["size"])) for _, entries in self._entries())

    @property
    def used_bytes(self) -> int:
        """Bytes that all segments take on disk."""
        return sum(512 * stat.st_blocks for stat in self._stats())

    def _reserved_bytes(self) -> int:
        return sum(stat.st_size for stat in self._stats())

    def _stats(self) -> Iterator[os.stat_result]:
        for path in self.directory.glob("segment-*"):
            with suppress(FileNotFoundError):  # it is deleted meanwhile
                yield path.stat()

    def close(self) -> None:
        with self._lock:
            self._is_full = True
            index = [] if self._index < 0 else [self._index]
            for descriptor in (*self._segments.values(), *index):
                os.close(descriptor)
            self._segments.clear()
            self._index = -1
            self.held.close()

    def _entry(self, index: int) -> tuple[int, int, int, int]:
        entry: Any = _ENTRY.unpack(os.pread(self._index, _ENTRY.size, index * _ENTRY.size))
        return entry  # type: ignore[no-any-return]

    def _entries(self) -> Iterator[tuple[int, Any]]:
        """Yields the entries in chunks, each with the index of its first sample."""
        for first in count(0, _PART):
            data = os.pread(self._index, _PART * _ENTRY.size, first * _ENTRY.size)
            if len(data) < _ENTRY.size:
                return
            yield first, np.frombuffer(data, _ENTRY_TYPE, len(data) // _ENTRY.size)

    def _descriptor(self, segment: int, flags: int = 0) -> int:
        descriptor = self._segments.get(segment)
        if descriptor is None:
            descriptor = os.open(self.directory / f"segment-{segment}", os.O_RDWR | flags, 0o600)
            kept = self._segments.setdefault(segment, descriptor)
            if kept != descriptor:  # another thread was faster
                os.close(descriptor)
            descriptor = kept
        return descriptor

    def _grow(self, record: bytes) -> bool:
        """Reserves space in this process's segment, visible in the size of its file."""
        try:
            with locked(self.directory / "lock"):
                if self._own is None:
                    self._own = self._take_segment()
                free = self._budget - self._reserved_bytes() + (self._reserved - self._end)
                step = min(free, max(self._step, len(record)))
                self._is_full = step < len(record)
                if not self._is_full:
                    self._reserved = self._end + step
                    os.ftruncate(self._descriptor(self._own), self._reserved)
        except OSError as error:
            self._stop(error)
        if self._is_full:
            log.info("the cache %s is full; it keeps its samples", self.directory)
        return not self._is_full

    def _take_segment(self) -> int:
        """Takes over a segment, old or new, that no process is writing, and returns it."""
        numbers = [int(path.name.partition("-")[2]) for path in self.directory.glob("segment-*")]
        for number in (*sorted(numbers), max(numbers, default=0) + 1):
            descriptor = self._descriptor(number, os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            self._reserved = os.fstat(descriptor).st_size
            self._end = self._written(number)
            return number
        raise AssertionError("a new segment is locked")

    def _written(self, segment: int) -> int:
        """Returns the end of a segment's last record with an entry."""
        end = 0
        for _, entries in self._entries():
            own = entries[(entries["segment"] == segment) & (entries["size"] > 0)]
            ends = own["offset"] + own["size"]
            end = max(end, int(ends[ends <= self._reserved].max(initial=0)))
        return end

    def _stop(self, error: OSError) -> None:
        self._is_full = True
        log.warning(
            "the cache %s takes no more samples: %s; it still serves those it has",
            *(self.directory, os.strerror(error.errno or 0)),
        )


@contextmanager
def locked(path: Path, mode: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Holds the lock of a file, which one process at a time can have."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, mode)
        yield
    finally:
        os.close(descriptor)


def _digest(index: int, record: bytes) -> int:
    return xxhash.xxh3_64_intdigest(record, seed=index)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    """Writes all of the data. Raises `OSError`, also if the disk takes only a part."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
