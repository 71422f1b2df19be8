"""A pool of open files that many threads read from, at any offset."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakSet

from infeed_server.storage.files import is_remote
from infeed_server.storage.stamp import FileStamp, StoredFile
from infeed_server.storage.stores import ObjectRead, RangeRequests, store_of

MAX_IDLE_HANDLES, MAX_ALL_IDLE_HANDLES = 128, 512
"""Idle handles that a pool, and all pools of a process together, keep open: below the usual limit
of 1024 file descriptors."""

_BLOCK = 1 << 20
"""Minimum bytes that `BlockHandle` reads at once."""


class FileHandle:
    """An open file, used by one thread at a time and closed with its last reference."""

    _descriptor: int | None = None

    def __init__(self, path: str) -> None:
        """Raises `OSError`."""
        self._object = None
        if is_remote(path):
            self._object = StoredFile(path, store_of(path).stat(path))
        else:
            # Without O_NONBLOCK, which files ignore, opening a pipe waits for its writer.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def read(self, offset: int, size: int) -> bytes:
        """Reads `size` bytes from `offset` on, fewer only at the end of the file. Raises `OSError`,
        also if an object has been replaced since it was opened."""
        if self._object is not None:
            size = max(0, min(size, self._object.stamp.size - offset))
            (content,) = RangeRequests().read([ObjectRead(self._object, offset, size)])
            if isinstance(content, OSError):
                raise content
            return content
        assert self._descriptor is not None
        content = b""
        # One call returns at most 2 GiB, and less from a network file system.
        while left := size - len(content):
            if not (rest := os.pread(self._descriptor, left, offset + len(content))):
                break
            content += rest
        return content

    def stamp(self) -> FileStamp:
        """Returns the stamp of the open file, even if its path was replaced."""
        if self._object is not None:
            return self._object.stamp
        assert self._descriptor is not None
        return FileStamp.of(os.fstat(self._descriptor))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> FileHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class BlockHandle(FileHandle):
    """An open file read in blocks, aligned to its beginning, as each read is a request."""

    _block, _begin = b"", 0

    def read(self, offset: int, size: int) -> bytes:
        begin = offset - self._begin
        if not 0 <= begin <= begin + size <= len(self._block):
            self._block, self._begin = super().read(offset, max(size, _BLOCK)), offset
            begin = 0
        return self._block[begin : begin + size]


class _Closeable(Protocol):
    def close(self) -> None: ...


Handle = TypeVar("Handle", bound=_Closeable)


class FileHandlePool(Generic[Handle]):
    """Handles kept open between reads; the least recently used is closed first. All pools of a
    process, such as those of a mixture's parts, share the limit."""

    _pools: ClassVar[WeakSet[FileHandlePool[Any]]] = WeakSet()

    def __init__(self, open_file: Callable[[int], Handle]) -> None:
        """`open_file` opens a file by its number."""
        self._open_file = open_file
        self._idle: list[tuple[int, Handle]] = []
        self._lock = threading.Lock()
        self._pools.add(self)

    @contextmanager
    def borrow(self, file: int) -> Iterator[Handle]:
        """Lends this thread a handle of the file. A handle is closed if the body raises."""
        with self._lock:
            last = max((n for n, (other, _) in enumerate(self._idle) if other == file), default=-1)
            idle = self._idle.pop(last)[1] if last >= 0 else None
        handle = idle or self._open_file(file)
        try:
            yield handle
        except BaseException:
            handle.close()
            raise
        with self._lock:
            self._idle.append((file, handle))
            share = max(1, MAX_ALL_IDLE_HANDLES // len(self._pools))
            while len(self._idle) > min(share, MAX_IDLE_HANDLES):
                self._idle.pop(0)[1].close()
