"""Byte ranges of objects, kept on a local disk in aligned blocks: a block is requested once.

A block is kept in chunks, so that the read of a small range reads little from the disk. Each chunk
has a hash; one that does not match is requested again. What fits into the budget stays: with a new
permutation in each epoch, no replacement has more hits.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ByteSize, TypeAdapter

from infeed.shared.errors import ConfigError
from infeed_server.cache.directory import VERSION, open_directory
from infeed_server.storage.files import abbreviate
from infeed_server.storage.flights import Flights
from infeed_server.storage.stamp import StoredFile

VARIABLE = "INFEED_READ_CACHE"
"""The environment variable with the folder; it is the host's, and no part of a pipeline."""
BUDGET_VARIABLE = "INFEED_READ_CACHE_BUDGET"

READS = "reads of "
"""Begin of the name of a directory's owner, before its first object; others are pipelines."""

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
        digest = hashlib.sha256(b"chunks %d\n" % VERSION)
        counts = []
        for file in files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode())
            counts.append(-(-file.stamp.size // _CHUNK))
        self._first = np.cumsum([0, *counts]).tolist()
        """Number of each file's first chunk; a block has the number of its first one."""
        self._flights = Flights(self._find, self._load)
        """Blocks by number."""
        name, about = digest.hexdigest(), READS + abbreviate([file.path for file in files], 1)
        self._store = open_directory(root, name, about, self._first[-1], budget, shared=True)
        self.close = self._store.close

    def read(self, ranges: Sequence[Range]) -> list[bytes | OSError]:
        """Returns the bytes of each range, or its error."""
        contents: list[Any] = [self._kept(one) for one in ranges]
        slots = [slot for slot, content in enumerate(contents) if content is None]
        missing = [ranges[slot] for slot in slots]
        if self._store.is_full:  # a block would be requested for each of its ranges
            found = self._request(missing) if missing else []
        else:
            numbers = sorted({number for one in missing for number in self._blocks(one)})
            blocks = dict(zip(numbers, self._flights.get(numbers), strict=True))
            found = [self._cut(one, blocks) for one in missing]
        for slot, content in zip(slots, found, strict=True):
            contents[slot] = content
        return contents

    def _blocks(self, one: Range) -> range:
        """Returns the numbers of the blocks of a range."""
        file, begin, size = one
        first = self._first[file]
        step = _BLOCK // _CHUNK
        return range(first + begin // _BLOCK * step, first + -(-(begin + size) // _CHUNK), step)

    def _range(self, number: int) -> Range:
        """Returns the range of a block: the last of a file is shorter."""
        file = bisect_right(self._first, number) - 1
        begin = (number - self._first[file]) * _CHUNK
        return file, begin, min(_BLOCK, self._files[file].stamp.size - begin)

    def _kept(self, one: Range) -> bytes | None:
        """Returns the bytes of a range whose chunks are all kept."""
        file, begin, size = one
        chunks, base = [], self._first[file]
        for number in range(begin // _CHUNK, -(-(begin + size) // _CHUNK)):
            chunk = self._store.get(base + number)
            if chunk is None:
                return None
            chunks.append(chunk)
        skipped = begin % _CHUNK
        return b"".join(chunks)[skipped : skipped + size]

    def _find(self, number: int) -> bytes | OSError | None:
        return self._kept(self._range(number))

    def _load(self, numbers: Sequence[int]) -> list[bytes | OSError]:
        """Requests blocks, and keeps them."""
        contents = self._request([self._range(number) for number in numbers])
        for number, content in zip(numbers, contents, strict=True):
            kept = b"" if isinstance(content, OSError) else content
            for part in range(0, len(kept), _CHUNK):
                self._store.put(number + part // _CHUNK, kept[part : part + _CHUNK])
        return contents

    def _cut(self, one: Range, blocks: Mapping[int, bytes | OSError]) -> bytes | OSError:
        """Returns the bytes of a range in its blocks, or the first error."""
        contents: list[Any] = [blocks[number] for number in self._blocks(one)]
        for error in contents:
            if isinstance(error, OSError):
                return error
        skipped = one[1] % _BLOCK
        return b"".join(contents)[skipped : skipped + one[2]]


def read_cache(files: Sequence[StoredFile], request: Request) -> ReadCache | None:
    """Returns the cache that the environment asks for; None without one, for local files, and where
    a file has no etag. Raises `ConfigError`."""
    if not files or not all(file.stamp.etag for file in files):
        return None
    chosen = folder_and_budget()
    return ReadCache(files, request, *chosen) if chosen else None


def folder_and_budget() -> tuple[Path, int] | None:
    """Returns what the environment chooses; None without a folder. Raises `ConfigError`."""
    if not (folder := os.environ.get(VARIABLE)):
        return None
    text = os.environ.get(BUDGET_VARIABLE, "64GiB")
    try:
        return Path(folder), TypeAdapter(ByteSize).validate_python(text)
    except ValueError as error:
        problem = f"{BUDGET_VARIABLE}={text!r} should be bytes, or a size such as 64GiB"
        raise ConfigError(problem) from error
