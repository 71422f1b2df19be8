"""Byte ranges of objects, kept on a local disk in aligned blocks: a block is requested once.

A block is kept in chunks, so that the read of a small range reads little from the disk. Each chunk
has a hash; one that does not match is requested again. What fits into the budget stays: with a new
permutation in each epoch, no replacement has more hits.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ByteSize, TypeAdapter

from infeed.shared.errors import ConfigError
from infeed_server.cache.directory import VERSION, OpenDirectory, open_directory
from infeed_server.cache.disk import DiskStore
from infeed_server.storage import object_store
from infeed_server.storage.object_store import ObjectRead
from infeed_server.storage.stamp import StoredFile

VARIABLE = "INFEED_READ_CACHE"
"""The environment variable with the folder; it is the host's, and no part of a pipeline."""
BUDGET_VARIABLE = "INFEED_READ_CACHE_BUDGET"

_CHUNK = 128 << 10
_BLOCK = 32 * _CHUNK
"""Bytes of one request: 4 MiB take about as long to send as a round trip of 30 ms."""

Range = tuple[int, int, int]
"""Number of a file, first byte, size."""


class ReadCache:
    """The kept ranges of a list of objects. Thread-safe."""

    def __init__(self, files: Sequence[StoredFile], root: Path, budget: int) -> None:
        """Raises `ConfigError` if the folder cannot be written."""
        self._files, self._root, self._budget = files, root, budget
        digest = hashlib.sha256(b"reads %d\n" % VERSION)
        counts = []
        for file in files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode())
            counts.append(-(-file.stamp.size // _BLOCK))
        self._fingerprint = digest.hexdigest()
        self._first = np.cumsum([0, *counts]).tolist()
        """Number of each file's first block."""
        self._lock = threading.Lock()
        self._flights: dict[int, Future[bytes | OSError]] = {}
        """Blocks that are being requested, by number."""
        self._opened: OpenDirectory | None = None
        self._pid = 0
        self._open().close()  # a folder that cannot be written is an error now

    def read(self, ranges: Sequence[Range]) -> list[bytes | OSError]:
        """Returns the bytes of each range, or its error."""
        store = self._store()
        contents: list[Any] = [self._kept(store, one) for one in ranges]
        slots = [slot for slot, content in enumerate(contents) if content is None]
        missing = [ranges[slot] for slot in slots]
        if store.is_full:  # a block would be requested for each of its ranges
            found = self._request(missing)
        else:
            numbers = sorted({number for one in missing for number in self._blocks(one)})
            blocks = dict(zip(numbers, self._fetch(store, numbers), strict=True))
            found = [self._cut(one, blocks) for one in missing]
        for slot, content in zip(slots, found, strict=True):
            contents[slot] = content
        return contents

    def close(self) -> None:
        with self._lock:
            if self._opened is not None and self._pid == os.getpid():
                self._opened.close()
            self._opened = None

    def _store(self) -> DiskStore:
        with self._lock:
            if self._opened is None or self._pid != os.getpid():  # a writer is of one process
                self._opened, self._pid = self._open(), os.getpid()
            return self._opened.store

    def _open(self) -> OpenDirectory:
        chunks = self._first[-1] * _BLOCK // _CHUNK
        about = f"reads of {self._files[0].path}"
        return open_directory(self._root, self._fingerprint, about, chunks, self._budget)

    def _blocks(self, one: Range) -> range:
        """Returns the numbers of the blocks of a range."""
        file, begin, size = one
        first = self._first[file]
        return range(first + begin // _BLOCK, first + -(-(begin + size) // _BLOCK))

    def _range(self, number: int) -> Range:
        """Returns the range of a block: the last of a file is shorter."""
        file = bisect_right(self._first, number) - 1
        begin = (number - self._first[file]) * _BLOCK
        return file, begin, min(_BLOCK, self._files[file].stamp.size - begin)

    def _kept(self, store: DiskStore, one: Range) -> bytes | None:
        """Returns the bytes of a range whose chunks are all kept."""
        file, begin, size = one
        chunks, base = [], self._first[file] * (_BLOCK // _CHUNK)
        for number in range(begin // _CHUNK, -(-(begin + size) // _CHUNK)):
            chunk = store.get(base + number)
            if chunk is None:
                return None
            chunks.append(chunk)
        skipped = begin % _CHUNK
        return b"".join(chunks)[skipped : skipped + size]

    def _fetch(self, store: DiskStore, numbers: Sequence[int]) -> list[bytes | OSError]:
        """Requests blocks and keeps them; those that another thread requests are its results."""
        with self._lock:
            own = [number for number in numbers if number not in self._flights]
            self._flights.update((number, Future()) for number in own)
            flights = {number: self._flights[number] for number in numbers}
        try:
            ranges = {number: self._range(number) for number in own}
            # Another thread may have kept one since this one looked.
            kept = {number: self._kept(store, one) for number, one in ranges.items()}
            absent = [number for number in own if kept[number] is None]
            results = self._request([ranges[number] for number in absent])
            for number, content in zip(absent, results, strict=True):
                if isinstance(content, bytes):
                    self._keep(store, number, content)
                flights[number].set_result(content)
            for number in set(own).difference(absent):
                flights[number].set_result(kept[number] or b"")
        finally:
            with self._lock:
                for number in own:
                    del self._flights[number]
                    if not flights[number].done():
                        flights[number].set_result(OSError(errno.EIO, "the request was ended"))
        return [flights[number].result() for number in numbers]

    def _request(self, ranges: Sequence[Range]) -> list[bytes | OSError]:
        reads = [ObjectRead(self._files[file], begin, size) for file, begin, size in ranges]
        return object_store.read_ranges(reads) if reads else []

    def _keep(self, store: DiskStore, number: int, content: bytes) -> None:
        for part in range(0, len(content), _CHUNK):
            index = (number * _BLOCK + part) // _CHUNK
            store.put(index, content[part : part + _CHUNK])

    def _cut(self, one: Range, blocks: Mapping[int, bytes | OSError]) -> bytes | OSError:
        """Returns the bytes of a range in its blocks, or the first error."""
        parts: list[bytes] = []
        for number in self._blocks(one):
            content = blocks[number]
            if isinstance(content, OSError):
                return content
            parts.append(content)
        skipped = one[1] % _BLOCK
        return b"".join(parts)[skipped : skipped + one[2]]


def read_cache(files: Sequence[StoredFile]) -> ReadCache | None:
    """Returns the cache that the environment asks for; None without one, for local files, and where
    a file has no etag. Raises `ConfigError`."""
    folder = os.environ.get(VARIABLE)
    if not folder or not files or not all(file.stamp.etag for file in files):
        return None
    text = os.environ.get(BUDGET_VARIABLE, "64GiB")
    try:
        budget = TypeAdapter(ByteSize).validate_python(text)
    except ValueError as error:
        problem = f"{BUDGET_VARIABLE}={text!r} should be bytes, or a size such as 64GiB"
        raise ConfigError(problem) from error
    return ReadCache(files, Path(folder), budget)
