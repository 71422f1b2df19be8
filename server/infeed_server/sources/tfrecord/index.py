"""The record index: the offset and length of every record of a list of TFRecord files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_server.sources.base import ProgressCallback
from infeed_server.sources.tfrecord.framing import (
    FRAME_BYTES,
    FileRecords,
    Uint32Array,
    scan_records,
)
from infeed_server.sources.tfrecord.index_cache import load_index, store_index
from infeed_server.storage.files import abbreviate, read_stamp, reading
from infeed_server.storage.handles import FileHandle
from infeed_server.storage.stamp import FileStamp, StoredFile

_log = logging.getLogger(__name__)

_PROGRESS_STEP = 8 << 20
"""Bytes between two calls of the progress callback."""


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
    files: Sequence[StoredFile],
    directory: str | None = None,
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
    rebuild: bool = False,
) -> RecordIndex:
    """Returns the index of these files, from the cache where it is valid, else built and cached.
    `directory` is the folder of the cache, instead of the data's own. With `keep_damaged`, all data
    is read once; records that do not match their CRC, or that a file ends inside of, are samples
    that cannot be read, and part of the identity. Raises `SourceError`."""
    ends = np.cumsum([file.stamp.size for file in files], dtype=np.int64).tolist()
    report = _limited(progress, ends[-1])
    digest = hashlib.sha256()
    indexed: list[IndexedFile] = []
    columns: list[tuple[npt.NDArray[np.uint64], Uint32Array, Uint32Array]] = []
    damaged: list[int] = []
    first = [0]
    for (path, stamp), end in zip(files, ends, strict=True):
        cached = None if rebuild else load_index(path, stamp, directory)
        if cached is None or (keep_damaged and cached.damaged is None):
            done = partial(report, end - stamp.size)
            records = _scan_file(path, stamp, done, verify=keep_damaged)
            store_index(path, stamp, records, directory)
        else:
            records = cached
        lengths, crcs, bad = records
        offsets = _offsets(lengths)
        truncated_at = int(offsets[-1]) if offsets[-1] < stamp.size else None
        indexed.append(IndexedFile(path, stamp, len(lengths), truncated_at, records is cached))
        digest.update(np.stack((lengths, crcs), axis=1).astype("<u4").tobytes())
        if not keep_damaged:
            refuse_truncated(indexed[-1])
        elif bad is not None and len(bad):
            digest.update(f"damaged {bad.tolist()}".encode())
            _log.warning(
                "%s: %d records are damaged, at byte %s: bad samples, and part of the fingerprint",
                *(path, len(bad), abbreviate(offsets[bad].tolist())),
            )
            damaged += (first[-1] + bad).tolist()
        if truncated_at is None:
            offsets = offsets[:-1]
        else:
            digest.update(f"truncated {stamp.size - truncated_at}".encode())
            # The truncated record's length is unknown, and not needed: it is never read.
            lengths, crcs = np.append(lengths, np.uint32(0)), np.append(crcs, np.uint32(0))
            damaged.append(first[-1] + indexed[-1].records)
        columns.append((offsets, lengths, crcs))
        first.append(first[-1] + len(offsets))
        report(end, 0, at_end=True)
    return RecordIndex(
        tuple(indexed),
        np.array(first, np.int64),
        np.concatenate([offsets for offsets, _, _ in columns]),
        np.concatenate([lengths for _, lengths, _ in columns]),
        np.concatenate([crcs for _, _, crcs in columns]),
        digest.hexdigest(),
        np.array(damaged, np.int64),
        keep_damaged,
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


def _scan_file(
    path: str, stamp: FileStamp, on_position: Callable[[int], None], *, verify: bool
) -> FileRecords:
    with reading(path), FileHandle(path) as handle:
        records = scan_records(handle, path, stamp.size, on_position, verify=verify)
    if read_stamp(path) != stamp:
        raise SourceError(f"{path} changed while it was indexed; is it being written?", file=path)
    return records


def _offsets(lengths: Uint32Array) -> npt.NDArray[np.uint64]:
    """Returns the start of each of a file's records, and the end of the last."""
    ends = np.cumsum(lengths.astype(np.uint64) + np.uint64(FRAME_BYTES), dtype=np.uint64)
    return np.concatenate([np.zeros(1, np.uint64), ends])


def _limited(progress: ProgressCallback | None, total: int) -> Callable[..., None]:
    """Returns a function that reports the bytes done, at most once per step."""
    reported = 0

    def report(begin: int, position: int, *, at_end: bool = False) -> None:
        nonlocal reported
        done = begin + position
        if progress is not None and (at_end or done - reported >= _PROGRESS_STEP):
            reported = done
            progress(done, total)

    return report
