"""Byte ranges of objects, kept on a local disk in aligned blocks: a block is requested once.

A block is kept in chunks, so that the read of a small range reads little from the disk. Each chunk
has a hash; one that does not match is requested again. What fits into the budget stays: with a new
permutation in each epoch, no replacement has more hits.
"""

from __future__ import annotations

import hashlib
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ByteSize, TypeAdapter

from infeed.shared.errors import ConfigError
from infeed_server.cache.directory import VERSION, OpenDirectory, open_directory
from infeed_server.cache.disk import DiskStore
from infeed_server.storage.flights import Flights
from infeed_server.storage.stamp import StoredFile

VARIABLE = "INFEED_READ_CACHE"
"""The environment variable with the folder; it is the host's, and no part of a pipeline."""
BUDGET_VARIABLE = "INFEED_READ_CACHE_BUDGET"

_CHUNK = 128 << 10
_BLOCK = 32 * _CHUNK
"""Bytes of one request: 4 MiB take about as long to send as a round trip of 30 ms."""

Range = tuple[int, int, int]
"""Number of a file, first byte, size."""

Request = Callable[[Sequence[Range]], list[bytes | OSError]]
"""Returns the bytes of ranges in a store, or their errors."""


class ReadCache:
    """The kept ranges of a list of objects. Thread-safe."""

    def __init__(
        self, files: Sequence[StoredFile], request: Request, root: Path, budget: int
    ) -> None:
        """Raises `ConfigError` if the folder cannot be written."""
        self._files, self._request = files, request
        self._root, self._budget = root, budget
        digest = hashlib.sha256(b"reads %d\n" % VERSION)
        counts = []
        for file in files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode())
            counts.append(-(-file.stamp.size // _BLOCK))
        self._fingerprint = digest.hexdigest()
        self._first = np.cumsum([0, *counts]).tolist()
        """Number of each file's first block."""
        self._lock = threading.Lock()
        self._flights = Flights(self._find, self._load)
        """Blocks by number."""
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
            found = self._request(missing) if missing else []
        else:
            numbers = sorted({number for one in missing for number in self._blocks(one)})
            blocks = dict(zip(numbers, self._flights.get(numbers), strict=True))
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
        root, name = self._root, self._fingerprint
        return open_directory(root, name, about, chunks, self._budget, shared=True)

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

    def _find(self, number: int) -> bytes | OSError | None:
        return self._kept(self._store(), self._range(number))

    def _load(self, numbers: Sequence[int]) -> list[bytes | OSError]:
        """Requests blocks, and keeps them."""
        contents, store = self._request([self._range(number) for number in numbers]), self._store()
        for number, content in zip(numbers, contents, strict=True):
            for part in range(0, 0 if isinstance(content, OSError) else len(content), _CHUNK):
                index = (number * _BLOCK + part) // _CHUNK
                store.put(index, content[part : part + _CHUNK])  # type: ignore[index]
        return contents

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


def read_cache(files: Sequence[StoredFile], request: Request) -> ReadCache | None:
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
    return ReadCache(files, request, Path(folder), budget)
