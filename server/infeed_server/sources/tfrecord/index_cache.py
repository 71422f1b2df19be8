"""The cache of record indices on disk: validated when loaded, replaced atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.sources.files import (
    INDEX_SUFFIX,
    FileStamp,
    is_remote,
    user_cache_dir,
)
from infeed_server.sources.numpy_errors import NUMPY_FILE_ERRORS
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
        for candidate in self.candidates(path):
            try:
                _store(candidate, stamp, records)
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


def _store(path: Path, stamp: FileStamp, records: FileRecords) -> None:
    arrays: dict[str, Any] = {
        name: each for name, each in records._asdict().items() if each is not None
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            np.savez(file, stamp=np.array([_VERSION, *stamp]), **arrays)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes it private; an index is as readable as the umask allows.
        Path(temporary).chmod(0o666 & ~_umask())
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _umask() -> int:
    # os.umask only returns it while setting it, which would race with other threads.
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o077
