"""Paths of data, on local disks and in object stores."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from infeed_server.storage import object_store
from infeed_server.storage.files import expand_globs, is_remote, reading
from infeed_server.storage.handles import FileHandle

READ_THREADS = 16
"""That read the beginnings of files, to hide the latency of a store."""


class StorePath(PurePosixPath):
    """The path of an object or of a folder in a store, with the methods of `Path` that drafts
    need."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def absolute(self) -> StorePath:
        return self

    def is_file(self) -> bool:
        """Returns whether there is such an object. Raises `SourceError`."""
        with reading(str(self), "open"):
            return bool(object_store.glob_files(str(self)))

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Yields what the folder itself has; nothing if it cannot be listed, as of a `Path`."""
        if is_remote(str(self)):  # what contains a bucket is not
            with suppress(OSError):
                found = map(self.joinpath, object_store.list_names(str(self)))
                yield from (path for path in found if path.match(pattern))


DataPath = Path | StorePath


def data_path(path: str) -> DataPath:
    """Returns the path of a local file or of an object."""
    return StorePath(path) if is_remote(path) else Path(path)


def matching_files(pattern: str) -> list[DataPath]:
    """Returns the files that a glob matches, absolute and sorted, without indexes. Raises
    `SourceError` if there is none."""
    return [data_path(path) for path in expand_globs([pattern])]


def files_below(folder: DataPath) -> list[DataPath]:
    """Returns all files below a folder, as `matching_files` does, without hidden ones."""
    return matching_files(f"{glob.escape(str(folder))}/**")


def read_head(path: DataPath, size: int = 16) -> bytes:
    """Returns the first bytes of a file. Raises `OSError`."""
    with FileHandle(str(path)) as handle:
        return handle.read(0, size)
