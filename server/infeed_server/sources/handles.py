"""Open files that many threads read from, at any offset."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from infeed_server.sources.files import Stamp, is_remote

LIMIT = 128
"""Idle handles kept open: far below the usual limit of 1024 descriptors a process."""


class Handle:
    """One open file. Used by one thread at a time; closed with the last reference."""

    def __init__(self, path: str) -> None:
        """Raises `OSError` or `tf.errors.OpError`."""
        self._fd = -1
        self._remote: Any = None
        if is_remote(path):
            self._remote = tf.io.gfile.GFile(path, "rb")
        else:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset` on, fewer than `size` only at the end of the file."""
        if self._remote is not None:
            self._remote.seek(offset)
            content: bytes = self._remote.read(size)
            return content
        content = os.pread(self._fd, size, offset)
        # One call gives at most 2 GiB, and less when a signal or a network file system says so.
        while len(content) < size and (more := self._more(content, offset, size)):
            content += more
        return content

    def _more(self, content: bytes, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size - len(content), offset + len(content))

    def stamp(self) -> Stamp | None:
        """Size and time of the file that is open, whatever its path names now; None: remote."""
        if self._remote is not None:
            return None
        about = os.fstat(self._fd)
        return Stamp(about.st_size, about.st_mtime_ns)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        if self._remote is not None:
            self._remote.close()

    def __del__(self) -> None:
        self.close()


class HandlePool:
    """Handles kept open between reads, the longest unused closed first."""

    def __init__(self, opener: Callable[[int], Handle], limit: int = LIMIT) -> None:
        self._open = opener
        self._limit = limit
        self._idle: OrderedDict[int, list[Handle]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, file: int) -> Iterator[Handle]:
        """A handle of that file for this thread alone; one whose read failed is not kept."""
        handle = self._take(file) or self._open(file)
        try:
            yield handle
        except BaseException:
            handle.close()
            raise
        self._give_back(file, handle)

    def _take(self, file: int) -> Handle | None:
        with self._lock:
            stack = self._idle.get(file)
            if not stack:
                return None
            self._count -= 1
            handle = stack.pop()
            if not stack:
                del self._idle[file]
            return handle

    def _give_back(self, file: int, handle: Handle) -> None:
        with self._lock:
            self._idle.setdefault(file, []).append(handle)
            self._idle.move_to_end(file)
            self._count += 1
            while self._count > self._limit:
                oldest, stack = next(iter(self._idle.items()))
                stack.pop(0).close()
                self._count -= 1
                if not stack:
                    del self._idle[oldest]
