"""The content of a source: a digest of each sample, and one root over all of them.

The digests are SHA-256, which processors compute fast. With 128 bits, two samples with one digest
are found in 2^64 steps, and one of them could be put in the place of the other. The root is a
tree's, whose nodes have up to 16 children, so that a few of them prove that a sample is in it.
Digests of leaves, nodes and roots begin with different bytes:

    leaf = SHA-256(0, header of the columns, values)    node = SHA-256(1, children)
    root = SHA-256(2, number of leaves in 8 bytes, nodes of the highest level)
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from operator import methodcaller
from pathlib import Path

import numpy as np

from infeed_server.config.cache_dir import user_cache_dir
from infeed_server.sources.base import Columns, Indices, Source
from infeed_server.sources.concat import ConcatSource
from infeed_server.storage.files import write_atomically

log = logging.getLogger(__name__)

VERSION = 1
"""Changes with the digests of the same samples."""

SIZE = 32
"""Bytes of a digest."""

_GROUP = 16 * SIZE

UNREADABLE = hashlib.sha256(b"\0unreadable").digest()
"""In place of the digest of a sample that cannot be read."""


class Contents:
    """The digests of a source's samples, in the order of their ids."""

    def __init__(self, digests: bytes | bytearray) -> None:
        self.digests = bytes(digests)

    def __len__(self) -> int:
        return len(self.digests) // SIZE

    def __getitem__(self, index: int) -> bytes:
        return self.digests[index * SIZE : (index + 1) * SIZE]

    @property
    def unreadable(self) -> int:
        """The number of samples that could not be read."""
        return len(self) - len(self.differing(Contents(UNREADABLE * len(self))))

    def differing(self, other: Contents) -> Indices:
        """Returns the samples with another digest, of those that both have."""
        count = min(len(self), len(other))
        one, two = (
            np.frombuffer(contents.digests, np.uint8, count * SIZE).reshape(count, SIZE)
            for contents in (self, other)
        )
        return np.flatnonzero((one != two).any(axis=1))

    @cached_property
    def root(self) -> str:
        """The digest of all: 64 hexadecimal characters."""
        return _root(len(self), self._levels[-1])

    def proof(self, index: int) -> list[bytes]:
        """Returns what shows that the root has a sample: the nodes beside it on each level."""
        found = []
        for level in self._levels:
            index //= _GROUP // SIZE
            found.append(level[index * _GROUP : (index + 1) * _GROUP])
        return found

    @cached_property
    def _levels(self) -> list[bytes]:
        levels = [self.digests]
        while len(level := levels[-1]) > _GROUP:
            starts = range(0, len(level), _GROUP)
            levels.append(b"".join([_node(level[at : at + _GROUP]) for at in starts]))
        return levels


def is_proven(root: str, count: int, index: int, digest: bytes, proof: Sequence[bytes]) -> bool:
    """Returns whether a proof shows that sample `index` of `count` has a digest under a root."""
    node = digest
    for group in proof:
        index, place = divmod(index, _GROUP // SIZE)
        if group[place * SIZE : (place + 1) * SIZE] != node:
            return False
        node = _node(group)
    return index == 0 and bool(proof) and _root(count, proof[-1]) == root


class ContentHasher:
    """The hashing of successive samples as they are read, in any order."""

    def __init__(self, samples: range) -> None:
        self._start, self._digests = samples.start, bytearray(UNREADABLE * len(samples))

    def add(self, indices: Indices, columns: Columns) -> None:
        """Hashes samples: names, types, shapes and bytes of their columns, as they were read."""
        arrays = [columns[name] for name in sorted(columns)]
        header = json.dumps(
            [[name, columns[name].dtype.name, columns[name].shape[1:]] for name in sorted(columns)]
        )
        start = hashlib.sha256(b"\0%d\0%b\0" % (len(header), header.encode()))
        for row, index in enumerate((indices - self._start).tolist()):
            digest = start.copy()
            for array in arrays:
                if array.dtype != object:
                    digest.update(np.ascontiguousarray(array[row]).tobytes())
                    continue
                for value in array[row : row + 1].flat:
                    content = value if isinstance(value, bytes) else str(value).encode()
                    digest.update(b"%d\0" % len(content))
                    digest.update(content)
            self._digests[index * SIZE : (index + 1) * SIZE] = digest.digest()

    def contents(self) -> Contents:
        """Returns the digests; a sample that was not added is one that cannot be read."""
        return Contents(self._digests)


def parts_of(source: Source) -> tuple[Source, ...]:
    """Returns the sources whose samples a source has, one behind the other."""
    return source.parts if isinstance(source, ConcatSource) else (source,)


def split(contents: Contents, parts: Sequence[Source]) -> list[Contents]:
    """Returns the contents of each of the parts."""
    ends = np.cumsum([0, *map(len, parts)]) * SIZE
    return [Contents(contents.digests[a:b]) for a, b in pairwise(ends.tolist())]


def keep(source: Source, contents: Contents) -> None:
    """Keeps the digests of a source in the user's cache, one file for each of its parts; or logs
    that they cannot be kept."""
    parts = parts_of(source)
    for part, content in zip(parts, split(contents, parts), strict=True):
        path = _folder() / f"{_key(part)}-{content.root}"
        try:
            write_atomically(path, methodcaller("write", content.digests))
        except OSError as error:
            log.warning("the digests of samples cannot be kept in %s: %s", path.parent, error)


def kept(source: Source) -> Contents | None:
    """Returns the digests that were kept last for this version of a source and its parts."""
    parts = [_newest(f"{_key(part)}-*", len(part)) for part in parts_of(source)]
    digests = [part.digests for part in parts if part is not None]
    return Contents(b"".join(digests)) if len(digests) == len(parts) else None


def kept_under(root: str) -> Contents | None:
    """Returns the digests that have a root, of whatever version of a source."""
    return _newest(f"*-{root}") if re.fullmatch("[0-9a-f]{64}", root) else None


def _newest(pattern: str, count: int | None = None) -> Contents | None:
    for path in sorted(_folder().glob(pattern), key=lambda path: -path.stat().st_mtime_ns):
        contents = Contents(path.read_bytes())
        is_whole = len(contents) == count if count else len(contents) > 0
        if is_whole and path.name.endswith(f"-{contents.root}"):
            return contents
    return None


def _folder() -> Path:
    return user_cache_dir() / "contents"


def _key(source: Source) -> str:
    text = f"{VERSION} {source.identity} {source.stamp}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _node(children: bytes) -> bytes:
    return hashlib.sha256(b"\1" + children).digest()


def _root(count: int, top: bytes) -> str:
    return hashlib.sha256(b"\2" + count.to_bytes(8, "big") + top).hexdigest()
