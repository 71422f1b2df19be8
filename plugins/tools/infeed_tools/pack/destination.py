"""The destination of a pack: a folder or a store's URL, in which files appear whole."""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infeed.shared.errors import ConfigError
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import absolute_path, is_remote, reading, stat_file
from infeed_server.storage.stores import store_of

_UNFINISHED = ".unfinished-"
"""Part of an unfinished file's name."""


class Destination:
    """The files of a pack, by name. Raises `SourceError` if they cannot be read, and `ConfigError`
    if they cannot be written."""

    def __init__(self, path: str) -> None:
        self.path = absolute_path(path).rstrip("/")
        self.is_remote = is_remote(self.path)

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if there is none."""
        path = self.path_of(name)
        with reading(path), suppress(FileNotFoundError, NotADirectoryError):
            return store_of(path).read(path) if self.is_remote else Path(path).read_bytes()
        return None

    def size(self, name: str) -> int:
        """Returns the size of a file in bytes; -1 if there is none."""
        with suppress(FileNotFoundError):
            return stat_file(self.path_of(name)).size
        return -1

    def write(self, name: str, content: bytes) -> None:
        """Creates or replaces a small file."""
        with self.writing(name) as path:
            path.write_bytes(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yields the path of a local file, which gets its name after the block, once its bytes are
        on disk or in the store. Several processes may write the same file at once."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary if self.is_remote else self.path)
            path = folder / f".{name}{_UNFINISHED}{uuid.uuid4().hex}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                yield path
                if self.is_remote:
                    store_of(self.path).write(self.path_of(name), path.read_bytes())
                    return
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                path.replace(self.path_of(name))
            except OSError as error:
                self._explain(error, self.path_of(name))
                raise
            finally:
                with suppress(OSError):
                    path.unlink()

    def remove_unfinished(self) -> None:
        """Removes the files left by killed processes, once all shards are finished. A living
        process then gets a `FileNotFoundError`, but has nothing left to write."""
        for left in [] if self.is_remote else Path(self.path).glob(f".*{_UNFINISHED}*"):
            with suppress(OSError):
                left.unlink()

    def _explain(self, error: OSError, path: str) -> None:
        """Raises a `ConfigError` for an error of writing."""
        if isinstance(error, FileNotFoundError) and not self.is_remote:
            return  # another process has removed it
        problem = f"{error_text(error)}; give another folder or URL, or permit access"
        if os.strerror(errno.ENOSPC) in str(error):
            problem = "no space left. Finished shards are kept: free some space, and run the same "
            problem += "command again to continue"
        raise ConfigError(f"cannot write {path}: {problem}", file=path) from error
