"""The cache of record indices on disk: validated when loaded, replaced atomically."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.sources.files import (
    INDEX_SUFFIX,
    NUMPY_FILE_ERRORS,
    FileStamp,
    is_remote,
    user_cache_dir,
    write_atomically,
)
from infeed_server.sources.storage_faults import error_text
from infeed_server.sources.tfrecord.framing import FRAME_BYTES, FileRecords

_VERSION = 1


class IndexCache:
    """Cached indices in `directory`, else beside the data, else in the user's cache."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = None if directory is None else Path(directory)

    def candidates(self, path: str) -> list[Path]:
        """Returns the files that may hold the index of this data file, the preferred one first."""
        name = Path(path.rpartition("/")[2] + INDEX_SUFFIX)
        # In a shared folder, a hash distinguishes data files of the same name.
        shared = f"{hashlib.sha256(path.encode()).hexdigest()[:16]}-{name}"
        if self._directory is not None:
            return [self._directory / shared]
        beside = [] if is_remote(path) else [Path(path).parent / name]
        return [*beside, user_cache_dir() / shared]

    def load(self, path: str, stamp: FileStamp) -> FileRecords | None:
        """Loads the records of this version of the file; None without a valid index."""
        for candidate in self.candidates(path):
            loaded = _load(candidate, stamp)
            if loaded is not None:
                return loaded
        return None

    def store(self, path: str, stamp: FileStamp, records: FileRecords) -> Path | None:
        """Stores an index and returns its path; None when no candidate can be written.

        Raises `SourceError` when the configured directory cannot be written.
        """
        arrays: dict[str, Any] = {"stamp": np.array([_VERSION, *stamp]), **records._asdict()}
        if records.damaged is None:
            del arrays["damaged"]
        for candidate in self.candidates(path):
            try:
                write_atomically(candidate, partial(np.savez, **arrays))
            except OSError as error:
                if self._directory is not None:
                    raise SourceError(
                        f"cannot write the record index {str(candidate)!r}: {error_text(error)}",
                        file=candidate,
                    ) from error
            else:
                return candidate
        return None


def _load(path: Path, stamp: FileStamp) -> FileRecords | None:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if file["stamp"].tolist() != [_VERSION, *stamp]:
                return None
            lengths, crcs = file["lengths"], file["crcs"]
            damaged = file["damaged"] if "damaged" in file.files else None
    except NUMPY_FILE_ERRORS:
        return None
    if lengths.dtype != np.uint32 or crcs.dtype != np.uint32 or lengths.shape != crcs.shape:
        return None
    if damaged is not None and (
        damaged.dtype != np.int64 or not np.isin(damaged, np.arange(len(lengths))).all()
    ):
        return None
    end = int(lengths.sum(dtype=np.uint64)) + FRAME_BYTES * len(lengths)
    valid = lengths.ndim == 1 and end <= stamp.size
    return FileRecords(lengths, crcs, damaged) if valid else None
