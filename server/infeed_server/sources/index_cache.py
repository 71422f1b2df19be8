"""A file's record index on disk: read if it fits the data file, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from infeed.errors import SourceError
from infeed_server.sources.files import INDEX_MARK, Stamp, is_remote, why
from infeed_server.sources.framing import FRAME, Words

_VERSION = 1

_BROKEN = (
    OSError, EOFError, ValueError, KeyError, IndexError, TypeError, zipfile.BadZipFile, zlib.error,
    NotImplementedError,
)  # fmt: skip
"""What NumPy and zipfile raise for a file that is not what it should be."""


class IndexCache:
    """Where indices are kept: `directory`, else beside the data, else the user's cache."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = None if directory is None else Path(directory)

    def places(self, path: str) -> list[Path]:
        """Where the index of this data file may be, the preferred place first."""
        # The same name may occur in two folders of data, so a shared folder tells them apart.
        name = Path(path.rpartition("/")[2] + INDEX_MARK)
        shared = f"{hashlib.sha256(path.encode()).hexdigest()[:16]}-{name}"
        if self._directory is not None:
            return [self._directory / shared]
        beside = [] if is_remote(path) else [Path(path).parent / name]
        return [*beside, user_cache() / shared]

    def load(self, path: str, stamp: Stamp) -> tuple[Words, Words] | None:
        """Lengths and data CRCs of this version of the file; None when there are none to trust."""
        for place in self.places(path):
            found = _load(place, stamp)
            if found is not None:
                return found
        return None

    def store(self, path: str, stamp: Stamp, lengths: Words, crcs: Words) -> Path | None:
        """Where the index was kept; None when no place can be written.

        Raises `SourceError` when the directory that was asked for cannot be.
        """
        for place in self.places(path):
            problem = _try_store(place, stamp, lengths, crcs)
            if problem is None:
                return place
            if self._directory is not None:
                raise SourceError(
                    f"cannot write the record index {str(place)!r}: {why(problem)}", file=place
                ) from problem
        return None


def user_cache() -> Path:
    """The folder of what can be made again."""
    if own := os.environ.get("INFEED_CACHE_DIR"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "infeed"


def _load(place: Path, stamp: Stamp) -> tuple[Words, Words] | None:
    try:
        with place.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if file["stamp"].tolist() != [_VERSION, *stamp]:
                return None
            lengths, crcs = file["lengths"], file["crcs"]
    except _BROKEN:
        return None
    if lengths.dtype != np.uint32 or crcs.dtype != np.uint32 or lengths.shape != crcs.shape:
        return None
    whole = int(lengths.sum(dtype=np.uint64)) + FRAME * len(lengths)
    return (lengths, crcs) if lengths.ndim == 1 and whole <= stamp.size else None


def _try_store(place: Path, stamp: Stamp, lengths: Words, crcs: Words) -> OSError | None:
    try:
        _store(place, stamp, lengths, crcs)
    except OSError as error:
        return error
    return None


def _store(place: Path, stamp: Stamp, lengths: Words, crcs: Words) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=f"{place.name}.", dir=place.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            np.savez(file, stamp=np.array([_VERSION, *stamp]), lengths=lengths, crcs=crcs)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes it private; an index is as readable as the umask allows.
        Path(temporary).chmod(0o666 & ~_umask())
        os.replace(temporary, place)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _umask() -> int:
    # There is no call that only asks for it, and setting it would race with other threads.
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o077
