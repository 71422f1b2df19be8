"""The destination of a pack: a folder, or a URL of a store, in which files appear whole."""

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
"""Part of the name of a file that is being written."""


class Destination:
    """Files of a pack, by their names. Raises `SourceError` where they cannot be read, and
    `ConfigError` where they cannot be written."""

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
        """Returns the bytes of a file; -1 if there is none."""
        with suppress(FileNotFoundError):
            return stat_file(self.path_of(name)).size
        return -1

    def write(self, name: str, content: bytes) -> None:
        """Creates or replaces a small file."""
        with self.writing(name) as path:
            path.write_bytes(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yields the path of a local file, which gets the name after the block, once its bytes are
        on the disk or in the store. Processes may write the same file at the same time."""
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
        """Removes what killed processes have left, when all shards are finished. A living process
        has a `FileNotFoundError` then, and nothing to write any more."""
        for left in [] if self.is_remote else Path(self.path).glob(f".*{_UNFINISHED}*"):
            with suppress(OSError):
                left.unlink()

    def _explain(self, error: OSError, path: str) -> None:
        """Raises an error of writing as a `ConfigError`."""
        if isinstance(error, FileNotFoundError) and not self.is_remote:
            return  # it is removed
        problem = f"{error_text(error)}; name another folder or URL, or permit the access"
        if os.strerror(errno.ENOSPC) in str(error):
            problem = "no space is left; what is unfinished is removed; free some, and run the same"
            problem += " command again, which continues"
        raise ConfigError(f"cannot write {path}: {problem}", file=path) from error
