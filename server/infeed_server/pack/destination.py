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
from infeed_server.storage import object_store
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import absolute_path, is_remote

_UNFINISHED = ".unfinished-"
"""Part of the name of a file that is being written."""


class Destination:
    """Files of a pack, by their names. Raises `ConfigError` where they cannot be written."""

    def __init__(self, path: str) -> None:
        self.path = absolute_path(path).rstrip("/")
        self.is_remote = is_remote(self.path)

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def prepare(self) -> None:
        """Makes the folder."""
        if not self.is_remote:
            with self.writing(""):
                Path(self.path).mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if there is none."""
        path = self.path_of(name)
        try:
            return object_store.read(path) if self.is_remote else Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error_text(error)}", file=path) from error

    def size(self, name: str) -> int:
        """Returns the bytes of a file; -1 if there is none."""
        path = self.path_of(name)
        try:
            return object_store.stat(path).size if self.is_remote else Path(path).stat().st_size
        except FileNotFoundError:
            return -1

    def write(self, name: str, content: bytes) -> None:
        """Creates or replaces a small file."""
        for is_last in (False, True):
            try:
                with self.unfinished(name) as path:
                    path.write_bytes(content)
                    self.publish(path, name)
                return
            except FileNotFoundError:  # another command was finished, and removed it
                if is_last:
                    raise

    @contextmanager
    def unfinished(self, name: str) -> Iterator[Path]:
        """Yields the path of a local file, which `publish` gives its name; removed with the block,
        whatever happens. Another process may write the same file at the same time."""
        with tempfile.TemporaryDirectory() as folder, self.writing(name):
            unique = f".{name}{_UNFINISHED}{uuid.uuid4().hex}"
            path = Path(folder if self.is_remote else self.path, unique)
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)

    def publish(self, unfinished: Path, name: str) -> None:
        """Gives a written file its name, once its bytes are on the disk or in the store."""
        if self.is_remote:
            object_store.write(self.path_of(name), unfinished.read_bytes())
            return
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(self.path_of(name))

    def remove_unfinished(self) -> None:
        """Removes what killed processes have left; a living one notices, and finds its shard
        finished: to be called when all are."""
        for left in [] if self.is_remote else Path(self.path).glob(f".*{_UNFINISHED}*"):
            with suppress(OSError):
                left.unlink()

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Turns errors of the block into a `ConfigError`."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            # array_record raises other errors, with the text of the system's.
            is_full = os.strerror(errno.ENOSPC) in str(error)
            if isinstance(error, FileNotFoundError) or not (is_full or isinstance(error, OSError)):
                raise
            path = self.path_of(name)
            if is_full:
                problem = "no space is left; what is unfinished is removed; free some, and run"
                problem += " the same command again, which continues"
            else:
                problem = f"{error_text(error)}; name another folder or URL, or permit the access"
            raise ConfigError(f"cannot write {path}: {problem}", file=path) from error
