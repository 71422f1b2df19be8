"""Index of tars: the place of every sample's members."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_formats.index_cache import Arrays
from infeed_formats.indexing import index_files
from infeed_formats.webdataset.members import Member, MemberScan, TruncatedTar
from infeed_server.sources.base import ProgressCallback
from infeed_server.storage.handles import FileHandle
from infeed_server.storage.stamp import StoredFile

Int64 = npt.NDArray[np.int64]

_KEY = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)", re.DOTALL)
"""A name: the key, folder included, ends at the first dot of the base name; the extension follows.
A name without both belongs to no sample, as in the package `webdataset`."""

_METADATA = re.compile(r"__[^/]*__($|/)")
"""The prefix of names that the package `webdataset` ignores."""


class TarIndex(NamedTuple):
    """The members of a tar's samples, in order."""

    begins: Int64
    """The offset of each sample's first header."""
    samples: Int64
    """The number of each member's sample."""
    extensions: npt.NDArray[np.str_]
    """The different extensions, in lower case."""
    kinds: Int64
    """The position of each member's extension in `extensions`."""
    offsets: Int64
    """Byte at which each member's data begins."""
    sizes: Int64
    """Bytes of each member's data."""
    digest: npt.NDArray[np.str_]
    """A hash of names, sizes, small contents and the place of a truncation."""
    truncated: npt.NDArray[np.bool_]
    """Whether the file ends inside the last sample."""


class IndexedTar(NamedTuple):
    """One indexed tar."""

    file: StoredFile
    members: TarIndex
    cached: bool
    """Whether the cache had its index."""

    @property
    def samples(self) -> int:
        return len(self.members.begins)


def build_index(
    files: Sequence[StoredFile],
    directory: str | None = None,
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
    rebuild: bool = False,
) -> list[IndexedTar]:
    """Returns the index of each tar, from the cache if it is valid, else built and cached.
    `directory` replaces the data's own folder as the cache. Raises `SourceError`, including for a
    truncated tar unless `keep_damaged`."""
    indexed = index_files(files, _TarFormat(), directory, progress, rebuild=rebuild)
    tars = [IndexedTar(*entry) for entry in indexed]
    for tar in tars:
        if tar.members.truncated and not keep_damaged:
            path, whole = tar.file.path, max(0, tar.samples - 1)
            begin = int(tar.members.begins[-1]) if tar.samples else 0
            raise SourceError(
                f"{path} is truncated: {whole} whole samples precede byte {begin}, and it ends "
                "inside the next; write it again, or set on_error: substitute or mask",
                file=path,
                offset=begin,
            )
    return tars


def split_name(name: str) -> tuple[str, str] | None:
    """Returns the key and extension of a member; None if it belongs to no sample."""
    match = None if _METADATA.match(name) else _KEY.fullmatch(name)
    return (match[1], match[2].lower()) if match else None


def read_samples(scan: MemberScan, path: str) -> Iterator[tuple[str, dict[str, Member]]]:
    """Yields the key of each sample and its members by extension; a truncated tar's last sample
    comes before `TruncatedTar`. Raises `SourceError` for two members with the same extension, and
    for a sample whose members are not adjacent."""
    key, sample = "", dict[str, Member]()
    keys = _Keys(path)
    truncated = None
    try:
        for member in scan.members():
            if (parts := split_name(member.name)) is None:
                continue
            if sample and parts[0] != key:
                keys.add(key, sample)
                yield key, sample
                sample = {}
            key, extension = parts
            if extension in sample:
                raise SourceError(
                    f"{path} at byte {member.begin}: the sample {key!r} has two members "
                    f"{extension!r}; give each sample its own key",
                    file=path,
                    offset=member.begin,
                )
            sample[extension] = member
    except TruncatedTar as error:
        truncated = error
    if sample:
        keys.add(key, sample)
        yield key, sample
    if truncated is not None:
        raise truncated


class _Keys:
    """The keys of a tar's samples, with the extensions of each."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: dict[str, frozenset[str]] = {}
        self._shared: dict[frozenset[str], frozenset[str]] = {}

    def add(self, key: str, sample: Mapping[str, Member]) -> None:
        """Raises `SourceError` for a sample if an earlier one with its key has none of its
        extensions, as both are then parts of one sample."""
        extensions = frozenset(sample)
        before = self._seen.setdefault(key, self._shared.setdefault(extensions, extensions))
        if before.isdisjoint(extensions):
            begin = next(iter(sample.values())).begin
            first, second = (", ".join(sorted(part)) for part in (before, extensions))
            raise SourceError(
                f"{self._path} at byte {begin}: the members of the sample {key!r} are not "
                f"adjacent: other samples are between {first} and {second}; write the tar "
                "again, sorted by name: tar --sort=name -cf NEW FOLDER",
                file=self._path,
                offset=begin,
            )


class _TarFormat:
    """Indexing of a tar."""

    version = "webdataset 3"
    checked = False

    def scan(
        self, handle: FileHandle, path: str, size: int, on_position: Callable[[int], None]
    ) -> TarIndex:
        begins: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        extensions: dict[str, int] = {}
        digest = hashlib.sha256()
        truncated = False
        try:
            scan = MemberScan(handle, path, size, on_position)
            for _, sample in read_samples(scan, path):
                for extension, member in sample.items():
                    kind = extensions.setdefault(extension, len(extensions))
                    rows.append((len(begins), kind, member.offset, member.size))
                    digest.update(b"%b\0%d\n" % (os.fsencode(member.name), member.size))
                    digest.update(member.content)
                begins.append(next(iter(sample.values())).begin)
        except TruncatedTar as error:
            truncated = True
            digest.update(b"truncated %d" % (size - error.offset))
        samples, kinds, offsets, sizes = np.array(rows, np.int64).reshape(-1, 4).T.copy()
        return TarIndex(
            np.array(begins, np.int64),
            samples,
            np.array([*extensions], np.str_),
            *(kinds, offsets, sizes),
            np.array(digest.hexdigest()),
            np.array(truncated),
        )

    def decode(self, arrays: Arrays, size: int) -> TarIndex | None:
        index = TarIndex(*(arrays[name] for name in TarIndex._fields))
        members = (index.samples, index.kinds, index.offsets, index.sizes)
        valid = all(array.dtype == np.int64 for array in (index.begins, *members))
        valid &= len({array.shape for array in members}) == 1 and index.samples.ndim == 1
        valid &= bool((index.offsets + index.sizes <= size).all() and (index.sizes >= 0).all())
        valid &= bool(np.isin(index.kinds, np.arange(len(index.extensions))).all())
        valid &= np.array_equal(np.unique(index.samples), np.arange(len(index.begins)))
        return index if valid else None
