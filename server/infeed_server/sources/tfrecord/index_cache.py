"""The cache of record indices on disk: validated when loaded, replaced atomically.

An index is in the folder `directory`, else beside the data, else in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from infeed_server.config.cache_dir import user_cache_dir
from infeed_server.sources.tfrecord.framing import FRAME_BYTES, FileRecords
from infeed_server.storage.files import (
    INDEX_SUFFIX,
    is_remote,
    reading,
    write_atomically,
)
from infeed_server.storage.stamp import FileStamp

_log = logging.getLogger(__name__)

_VERSION = 2


def load_index(path: str, stamp: FileStamp, directory: str | None = None) -> FileRecords | None:
    """Loads the records of this version of the file; None without a valid index."""
    loaded = (_load(candidate, stamp) for candidate in _candidates(path, directory))
    return next((records for records in loaded if records is not None), None)


def store_index(
    path: str, stamp: FileStamp, records: FileRecords, directory: str | None = None
) -> None:
    """Stores an index, or logs that it cannot be kept. Raises `SourceError` for the `directory`."""
    arrays = {"stamp": _key(stamp), **records._asdict()}
    if records.damaged is None:
        del arrays["damaged"]
    write = partial(np.savez, **arrays)
    candidates = _candidates(path, directory)
    if directory is not None:
        with reading(str(candidates[0]), "write the record index"):
            write_atomically(candidates[0], write)
        return
    for candidate in candidates:
        with contextlib.suppress(OSError):
            write_atomically(candidate, write)
            return
    _log.warning(
        "the record index of %s cannot be kept in %s; it is rebuilt at every start",
        path,
        " nor in ".join(str(candidate.parent) for candidate in candidates),
    )


def _candidates(path: str, directory: str | None) -> list[Path]:
    """Returns the files that may hold the index of this data file, the preferred one first."""
    name = Path(path.rpartition("/")[2] + INDEX_SUFFIX)
    # In a shared folder, a hash distinguishes data files of the same name.
    shared = f"{hashlib.sha256(path.encode()).hexdigest()[:16]}-{name}"
    if directory is not None:
        return [Path(directory) / shared]
    beside = [] if is_remote(path) else [Path(path).parent / name]
    return [*beside, user_cache_dir() / shared]


def _key(stamp: FileStamp) -> npt.NDArray[np.str_]:
    return np.array([str(part) for part in (_VERSION, *stamp)])


def _load(path: Path, stamp: FileStamp) -> FileRecords | None:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if not np.array_equal(file["stamp"], _key(stamp)):
                return None
            lengths, crcs = file["lengths"], file["crcs"]
            damaged = file["damaged"] if "damaged" in file.files else None
        valid = lengths.dtype == crcs.dtype == np.uint32 and lengths.shape == crcs.shape
        if damaged is not None:
            numbers = np.arange(len(lengths))
            valid &= damaged.dtype == np.int64 and bool(np.isin(damaged, numbers).all())
        end = int(lengths.sum(dtype=np.uint64)) + FRAME_BYTES * len(lengths)
        valid &= lengths.ndim == 1 and end <= stamp.size
    except Exception:  # noqa: BLE001 - NumPy and zipfile raise many for a byte that changed
        return None
    return FileRecords(lengths, crcs, damaged) if valid else None
