"""The record index: where every record of a list of TFRecord files lies."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.errors import SourceError
from infeed_server.sources.definition import Progress
from infeed_server.sources.files import Stamp, stamp, why
from infeed_server.sources.framing import FRAME, Words, scan
from infeed_server.sources.handles import Handle
from infeed_server.sources.index_cache import IndexCache

_log = logging.getLogger(__name__)

_PROGRESS_STEP = 8 << 20
"""Bytes between two calls of the progress callback."""


@dataclass(frozen=True)
class IndexedFile:
    """One data file and what is known of it."""

    path: str
    stamp: Stamp
    records: int
    """Whole records."""
    truncated_at: int | None
    """The offset of a record that the file ends inside of."""
    cached: bool
    """Whether its index was found, rather than built now."""


@dataclass(frozen=True)
class RecordIndex:
    """Every record of some files, in the order of the files and then of the offsets."""

    files: tuple[IndexedFile, ...]
    first: npt.NDArray[np.int64]
    """The index of each file's first record, and at last the number of records."""
    offsets: npt.NDArray[np.uint64]
    """Bytes, where a record's frame starts in its file."""
    lengths: Words
    """Bytes of a record's data."""
    identity: str
    """A hash of the records' data, wherever they lie."""

    def __len__(self) -> int:
        return len(self.offsets)

    def file_of(self, index: int) -> int:
        """The position in `files` of a record's file."""
        return int(np.searchsorted(self.first, index, side="right")) - 1

    def is_truncated(self, index: int) -> bool:
        """Whether this is the record that its file ends inside of."""
        return int(self.offsets[index]) == self.files[self.file_of(index)].truncated_at


def build_index(
    paths: Sequence[str],
    directory: str | None = None,
    progress: Progress | None = None,
    *,
    keep_truncated: bool = False,
    rebuild: bool = False,
) -> RecordIndex:
    """The index of these files: from the cache where it fits, else built, and kept.

    `directory` keeps the cache somewhere else than beside the data, `rebuild` ignores what it
    holds. A file that ends inside a record is refused; with `keep_truncated` that record becomes
    a sample, one that cannot be read.

    Raises `SourceError` for a file that is unreadable, corrupt, truncated or being written.
    """
    stamps = [stamp(path) for path in paths]
    report = _Report(progress, sum(each.size for each in stamps))
    cache = IndexCache(directory)
    digest = hashlib.sha256()
    files, offsets, lengths = [], [], []
    for path, version in zip(paths, stamps, strict=True):
        found = None if rebuild else cache.load(path, version)
        words = found or _build(path, version, cache, report)
        file = _file(path, version, words[0], cached=found is not None)
        if file.truncated_at is not None and not keep_truncated:
            raise SourceError(_truncated(file), file=path, offset=file.truncated_at)
        digest.update(np.stack(words, axis=1).astype("<u4").tobytes())
        starts, sizes = _lay_out(words[0], file)
        if file.truncated_at is not None:
            digest.update(f"truncated {version.size - file.truncated_at}".encode())
        files.append(file)
        offsets.append(starts)
        lengths.append(sizes)
        report.finish(version.size)
    first = np.cumsum([0, *map(len, lengths)], dtype=np.int64)
    return RecordIndex(
        tuple(files), first, np.concatenate(offsets), np.concatenate(lengths), digest.hexdigest()
    )


def _build(path: str, version: Stamp, cache: IndexCache, report: _Report) -> tuple[Words, Words]:
    try:
        handle = Handle(path)
        try:
            lengths, crcs = scan(handle, path, version.size, report.advance)
        finally:
            handle.close()
    except (OSError, tf.errors.OpError) as error:
        raise SourceError(f"cannot read {path!r}: {why(error)}", file=path) from error
    if stamp(path) != version:
        raise SourceError(f"{path} changed while it was indexed; is it being written?", file=path)
    if cache.store(path, version, lengths, crcs) is None:
        _log.warning(
            "the record index of %s cannot be kept in %s; it is built again at every start",
            path,
            " nor in ".join(str(place.parent) for place in cache.places(path)),
        )
    return lengths, crcs


def _file(path: str, version: Stamp, lengths: Words, *, cached: bool) -> IndexedFile:
    whole = int(lengths.sum(dtype=np.uint64)) + FRAME * len(lengths)
    truncated_at = whole if whole < version.size else None
    return IndexedFile(path, version, len(lengths), truncated_at, cached)


def _lay_out(lengths: Words, file: IndexedFile) -> tuple[npt.NDArray[np.uint64], Words]:
    ends = np.cumsum(lengths.astype(np.uint64) + np.uint64(FRAME), dtype=np.uint64)
    offsets = np.concatenate([np.zeros(1, np.uint64), ends])
    if file.truncated_at is None:
        return offsets[:-1], lengths
    # The cut record's length is unknown, and not needed: it is never read.
    return offsets, np.append(lengths, np.uint32(0))


def _truncated(file: IndexedFile) -> str:
    return (
        f"{file.path} is truncated: {file.records} whole records precede byte "
        f"{file.truncated_at}, where the file ends inside a record"
    )


class _Report:
    """Calls the progress callback, not too often."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = self._finished = self._told = 0

    def advance(self, step: int) -> None:
        self._done += step
        if self._done - self._told >= _PROGRESS_STEP:
            self._tell()

    def finish(self, size: int) -> None:
        """A whole file of `size` bytes is done, whether it was scanned or not."""
        self._finished += size
        self._done = self._finished
        self._tell()

    def _tell(self) -> None:
        self._told = self._done
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
