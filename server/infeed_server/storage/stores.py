"""The object stores of all installed packages, found through the entry points `infeed.stores`.

An entry point is named after the scheme of its paths, as in `s3://bucket/key`, and loads a `Store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import NamedTuple, Protocol

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, SourceError
from infeed_server.storage.stamp import FileStamp, StoredFile

_DOOR = Door("infeed.stores", "store")

_loaded: dict[str, Store] = {}
"""The stores that this process has used, by scheme."""


class ObjectRead(NamedTuple):
    """A range of an object, which must be unchanged since it was listed."""

    file: StoredFile
    begin: int
    size: int


class Store(Protocol):
    """Objects, by their paths; a module may be one. Its errors are `OSError`."""

    def read(self, path: str) -> bytes:
        """Reads a whole object."""

    def write(self, path: str, content: bytes) -> None:
        """Creates or replaces an object."""

    def stat(self, path: str) -> FileStamp:
        """Returns the version of an object."""

    def list_files(self, prefix: str, limit: int | None = None) -> Iterator[StoredFile]:
        """Yields the objects below a folder, at most about `limit`."""

    def list_names(self, folder: str) -> list[str]:
        """Returns the names of the objects and folders in a folder, sorted."""

    def glob_files(self, pattern: str) -> list[StoredFile]:
        """Returns the objects that match a pattern, like the module `glob`."""

    def start(self, reads: Sequence[ObjectRead]) -> Future[list[bytes | OSError]]:
        """Starts reading ranges, which may be cancelled. An error's number is ESTALE if the object
        has changed since it was listed."""

    def max_gap(self) -> int:
        """Returns the largest gap in bytes for which reading two ranges at once is faster."""

    def traffic(self) -> tuple[int, int]:
        """Returns the requests of this process for bytes of objects so far, and the bytes."""


def store_of(path: str) -> Store:
    """Returns the store of a path. Raises `ConfigError` for an unknown scheme, and as `Door.load`
    does."""
    scheme = path.partition("://")[0]
    if scheme not in _loaded:
        known = _DOOR.names()
        if scheme not in known:
            available = ", ".join(f"{one}://" for one in known)
            raise ConfigError(f"{path!r}: unknown scheme {scheme}://; available: {available}")
        _loaded[scheme] = _DOOR.load(scheme)
    return _loaded[scheme]


def traffic() -> tuple[int, int]:
    """Returns the requests of this process for bytes of objects so far, and the bytes."""
    requests, sizes = zip((0, 0), *(store.traffic() for store in {*_loaded.values()}), strict=True)
    return sum(requests), sum(sizes)


class RangeRequests:
    """Reads of ranges that `close` ends even if a store does not answer. Thread-safe."""

    def __init__(self) -> None:
        self._running: set[Future[list[bytes | OSError]]] = set()
        self._is_closed = False

    def read(self, reads: Sequence[ObjectRead]) -> list[bytes | OSError]:
        """Reads ranges of a store concurrently; returns the bytes or the error of each. Raises
        `SourceError` after `close`."""
        path = reads[0].file.path
        future = store_of(path).start(reads)
        self._running.add(future)
        try:
            if not self._is_closed:
                return future.result()
            future.cancel()
        except CancelledError:
            pass
        finally:
            self._running.discard(future)
        raise SourceError(f"{path}: the source is closed", file=path)

    def close(self) -> None:
        self._is_closed = True
        for future in [*self._running]:
            future.cancel()
