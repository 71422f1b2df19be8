"""The record index: the offset and length of every record of a list of TFRecord files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_formats.index_cache import Arrays, packed_index
from infeed_formats.indexing import index_files, to_arrays
from infeed_formats.tfrecord.framing import (
    FRAME_BYTES,
    FileRecords,
    Uint32Array,
    scan_records,
)
from infeed_server.sources.base import ProgressCallback
from infeed_server.storage.files import abbreviate
from infeed_server.storage.handles import FileHandle
from infeed_server.storage.stamp import FileStamp, StoredFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexedFile:
    """One indexed data file."""

    path: str
    stamp: FileStamp
    records: int
    """Whole records."""
    truncated_at: int | None
    """The offset of a record truncated by the file's end."""
    cached: bool
    """Whether the cache had its index."""


@dataclass(frozen=True)
class RecordIndex:
    """Every record of some files, ordered by file and offset."""

    files: tuple[IndexedFile, ...]
    first: npt.NDArray[np.int64]
    """The index of each file's first record, then the total number of records."""
    offsets: npt.NDArray[np.uint64]
    """Bytes: the start of each record in its file."""
    lengths: Uint32Array
    """Bytes of each record's data."""
    crcs: Uint32Array
    """Stored CRC of each record's data."""
    identity: str
    """A hash of the records' data and the numbers of damaged ones, independent of their place."""
    damaged: npt.NDArray[np.int64]
    """The damaged and truncated records, which are bad samples, in order."""
    verified: bool
    """Whether all data was verified, so that `damaged` is complete."""

    def __len__(self) -> int:
        return len(self.offsets)


def build_index(
    files: Sequence[StoredFile],
    directory: str | None = None,
    progress: ProgressCallback | None = None,
    *,
    keep_damaged: bool = False,
    rebuild: bool = False,
) -> RecordIndex:
    """Returns the index of these files, from the cache if it is valid, else built and cached.
    `directory` replaces the data's own folder as the cache. With `keep_damaged`, all data is read
    once; records that are truncated or do not match their CRC are unreadable samples, and part of
    the identity. Raises `SourceError`."""
    digest = hashlib.sha256()
    indexed: list[IndexedFile] = []
    columns: list[tuple[npt.NDArray[np.uint64], Uint32Array, Uint32Array]] = []
    damaged: list[int] = []
    first = [0]
    for (path, stamp), records, cached in index_files(
        files, _RecordFormat(verify=keep_damaged), directory, progress, rebuild=rebuild
    ):
        lengths, crcs, bad = records
        offsets = _offsets(lengths)
        truncated_at = int(offsets[-1]) if offsets[-1] < stamp.size else None
        indexed.append(IndexedFile(path, stamp, len(lengths), truncated_at, cached))
        digest.update(np.stack((lengths, crcs), axis=1).astype("<u4", copy=False).data)
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
            # The truncated record's length is unknown, but it is never read.
            lengths, crcs = np.append(lengths, np.uint32(0)), np.append(crcs, np.uint32(0))
            damaged.append(first[-1] + indexed[-1].records)
        columns.append((offsets, lengths, crcs))
        first.append(first[-1] + len(offsets))
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


def packed_records(records: FileRecords, size: int) -> bytes:
    """Returns the index stored beside a packed file of `size` bytes."""
    return packed_index(_RecordFormat.version, to_arrays(records), size)


def refuse_truncated(file: IndexedFile) -> None:
    """Raises `SourceError` for a file that ends inside a record."""
    if file.truncated_at is not None:
        raise SourceError(
            f"{file.path} is truncated: {file.records} whole records precede byte "
            f"{file.truncated_at}, where the file ends inside a record",
            file=file.path,
            offset=file.truncated_at,
        )


class _RecordFormat:
    """Indexing of a TFRecord file. With `verify`, it reads all data."""

    version = "2"
    checked = True  # by CRCs

    def __init__(self, *, verify: bool) -> None:
        self._verify = verify

    def scan(
        self, handle: FileHandle, path: str, size: int, on_position: Callable[[int], None]
    ) -> FileRecords:
        return scan_records(handle, path, size, on_position, verify=self._verify)

    def decode(self, arrays: Arrays, size: int) -> FileRecords | None:
        lengths, crcs, damaged = arrays["lengths"], arrays["crcs"], arrays.get("damaged")
        valid = lengths.dtype == crcs.dtype == np.uint32 and lengths.shape == crcs.shape
        if damaged is not None:
            numbers = np.arange(len(lengths))
            valid &= damaged.dtype == np.int64 and bool(np.isin(damaged, numbers).all())
        end = int(lengths.sum(dtype=np.uint64)) + FRAME_BYTES * len(lengths)
        valid &= lengths.ndim == 1 and end <= size
        valid &= damaged is not None or not self._verify
        return FileRecords(lengths, crcs, damaged) if valid else None


def _offsets(lengths: Uint32Array) -> npt.NDArray[np.uint64]:
    """Returns the start of each record in a file, and the end of the last."""
    ends = np.cumsum(lengths.astype(np.uint64) + np.uint64(FRAME_BYTES), dtype=np.uint64)
    return np.concatenate([np.zeros(1, np.uint64), ends])
