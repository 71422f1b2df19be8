"""The record index: the offset and length of every record of a list of TFRecord files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_server.sources.base import ProgressCallback
from infeed_server.sources.file_handles import FileHandle
from infeed_server.sources.files import FileStamp, file_errors, read_stamp
from infeed_server.sources.storage_faults import error_text
from infeed_server.sources.tfrecord.framing import (
    FRAME_BYTES,
    FileRecords,
    Uint32Array,
    scan_records,
)
from infeed_server.sources.tfrecord.index_cache import IndexCache

_log = logging.getLogger(__name__)

_PROGRESS_STEP = 8 << 20
"""Bytes between two calls of the progress callback."""

_MAX_LISTED_RECORDS = 5
"""Damaged records of a file that a warning names."""


@dataclass(frozen=True)
class IndexedFile:
    """One indexed data file."""

    path: str
    stamp: FileStamp
    records: int
    """Whole records."""
    truncated_at: int | None
    """The offset of a record that the file ends inside of."""
    cached: bool
    """Whether its index was in the cache, rather than built now."""


@dataclass(frozen=True)
class RecordIndex:
    """Every record of some files, in the order of the files and then of the offsets."""

    files: tuple[IndexedFile, ...]
    first: npt.NDArray[np.int64]
    """The index of each file's first record, then the number of records."""
    offsets: npt.NDArray[np.uint64]
    """Bytes: the start of each record in its file."""
    lengths: Uint32Array
    """Bytes of each record's data."""
    crcs: Uint32Array
    """Stored CRC of each record's data."""
    identity: str
    """A hash of the records' data, and of which are damaged, independent of where they are
    stored."""
    damaged: npt.NDArray[np.int64]
    """The records that are bad samples, in order: damaged ones, and those that a file ends
    inside of."""
    verified: bool
    """Whether all damage was looked for, so that `damaged` has every such record."""

    def __len__(self) -> int:
        return len(self.offsets)

    def file_of(self, index: int) -> int:
        """Returns the position in `files` of a record's file."""
        return int(np.searchsorted(self.first, index, side="right")) - 1


def build_index(
    paths: Sequence[str],
    directory: str | None = None,
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
    rebuild: bool = False,
) -> RecordIndex:
    """Returns the index of these files, from the cache where it is valid, else built and cached.

    `directory` is the folder of the cache, instead of the data's own; `rebuild` ignores its
    content. A file that ends inside a record is refused, or with `keep_damaged` that record
    becomes a sample that cannot be read. So do the records whose data does not match its CRC: with
    `keep_damaged` all data is read once, and they are part of the identity.

    Raises `SourceError` for a file that is unreadable, corrupt, truncated or being written.
    """
    stamps = [read_stamp(path) for path in paths]
    reporter = _ProgressReporter(progress, sum(stamp.size for stamp in stamps))
    cache = IndexCache(directory)
    digest = hashlib.sha256()
    files, offsets, lengths, all_crcs = [], [], [], []
    damaged: list[int] = []
    count = 0
    for path, stamp in zip(paths, stamps, strict=True):
        cached = None if rebuild else cache.load(path, stamp)
        if cached is not None and cached.damaged is None and keep_damaged:
            cached = None
        records = cached or _scan_file(path, stamp, cache, reporter, verify=keep_damaged)
        record_lengths, crcs, _ = records
        file = _indexed_file(path, stamp, record_lengths, cached=cached is not None)
        if not keep_damaged:
            refuse_truncated(file)
        digest.update(np.stack((record_lengths, crcs), axis=1).astype("<u4").tobytes())
        file_offsets = _offsets(record_lengths)
        if keep_damaged and records.damaged is not None and len(records.damaged):
            digest.update(f"damaged {records.damaged.tolist()}".encode())
            _warn_of_damage(path, file_offsets[records.damaged].tolist())
            damaged += (count + records.damaged).tolist()
        if file.truncated_at is None:
            file_offsets = file_offsets[:-1]
        else:
            digest.update(f"truncated {stamp.size - file.truncated_at}".encode())
            # The truncated record's length is unknown, and not needed: it is never read.
            record_lengths, crcs = (
                np.append(column, np.uint32(0)) for column in (record_lengths, crcs)
            )
            damaged.append(count + file.records)
        files.append(file)
        offsets.append(file_offsets)
        lengths.append(record_lengths)
        all_crcs.append(crcs)
        count += len(file_offsets)
        reporter.finish_file(stamp.size)
    first = np.cumsum([0, *map(len, lengths)], dtype=np.int64)
    return RecordIndex(
        tuple(files),
        first,
        np.concatenate(offsets),
        np.concatenate(lengths),
        np.concatenate(all_crcs),
        digest.hexdigest(),
        np.array(damaged, np.int64),
        keep_damaged,
    )


def _scan_file(
    path: str, stamp: FileStamp, cache: IndexCache, reporter: _ProgressReporter, *, verify: bool
) -> FileRecords:
    try:
        handle = FileHandle(path)
        try:
            records = scan_records(handle, path, stamp.size, reporter.advance, verify=verify)
        finally:
            handle.close()
    except file_errors() as error:
        raise SourceError(f"cannot read {path!r}: {error_text(error)}", file=path) from error
    if read_stamp(path) != stamp:
        raise SourceError(f"{path} changed while it was indexed; is it being written?", file=path)
    if cache.store(path, stamp, records) is None:
        _log.warning(
            "the record index of %s cannot be kept in %s; it is rebuilt at every start",
            path,
            " nor in ".join(str(candidate.parent) for candidate in cache.candidates(path)),
        )
    return records


def _indexed_file(
    path: str, stamp: FileStamp, lengths: Uint32Array, *, cached: bool
) -> IndexedFile:
    end = int(lengths.sum(dtype=np.uint64)) + FRAME_BYTES * len(lengths)
    truncated_at = end if end < stamp.size else None
    return IndexedFile(path, stamp, len(lengths), truncated_at, cached)


def _offsets(lengths: Uint32Array) -> npt.NDArray[np.uint64]:
    """Returns the start of each of a file's records, and the end of the last."""
    ends = np.cumsum(lengths.astype(np.uint64) + np.uint64(FRAME_BYTES), dtype=np.uint64)
    return np.concatenate([np.zeros(1, np.uint64), ends])


def _warn_of_damage(path: str, offsets: list[int]) -> None:
    listed = ", ".join(map(str, offsets[:_MAX_LISTED_RECORDS]))
    more = ", ..." if len(offsets) > _MAX_LISTED_RECORDS else ""
    _log.warning(
        "%s: %d records are damaged, at byte %s%s: bad samples, and part of the fingerprint, so "
        "that a server with an undamaged copy is not mixed with this one",
        *(path, len(offsets), listed, more),
    )


def refuse_truncated(file: IndexedFile) -> None:
    """Raises `SourceError` for a file that ends inside a record."""
    if file.truncated_at is not None:
        raise SourceError(
            f"{file.path} is truncated: {file.records} whole records precede byte "
            f"{file.truncated_at}, where the file ends inside a record",
            file=file.path,
            offset=file.truncated_at,
        )


class _ProgressReporter:
    """Limits the calls of the progress callback."""

    def __init__(self, progress: ProgressCallback | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = self._finished = self._reported = 0

    def advance(self, size: int) -> None:
        self._done += size
        if self._done - self._reported >= _PROGRESS_STEP:
            self._report()

    def finish_file(self, size: int) -> None:
        """Counts a file of `size` bytes as done, whether it was scanned or not."""
        self._finished += size
        self._done = self._finished
        self._report()

    def _report(self) -> None:
        self._reported = self._done
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
