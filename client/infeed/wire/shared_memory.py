"""Blocks of memory shared by a server on this host: the trainer does not copy a batch in one.

The server writes a batch into a block once. The trainer maps each block once, privately, so its
arrays are writable without effect on the server. A written page would hide the server's next batch,
so written pages are dropped before a block is returned.
"""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from infeed.shared.errors import ProtocolError
from infeed.shared.spec import Array

_RECENT = 64
"""Batches after which `BlockPool.shortage` looks at the latest ones: a stream's first batches are
made before its client has the blocks."""

SOCKET_SUFFIX = ".blocks"
"""Suffix of the second socket's path, after the server's."""

KEY_BYTES = 16

MAX_BLOCKS = 128
"""Blocks of one stream: the kernel passes 253 file descriptors at once."""

_TIMEOUT_SECONDS = 2.0
"""Wait for the second socket; without it, batches come in chunks."""

_DONTNEED, _POPULATE_WRITE = 4, 23
"""Advice of Linux for `madvise`; the last one since 5.14."""

_PRESENT_OR_SWAPPED, _OF_FILE = np.uint64(3 << 62), np.uint64(1 << 61)
"""Bits of an entry in /proc/self/pagemap."""

_PAGE = mmap.PAGESIZE


@lru_cache(maxsize=1)
def unsupported() -> str:
    """Returns why this process cannot use shared memory; empty if it can."""
    if sys.platform != "linux":
        return f"{sys.platform} cannot pass memory by file descriptor"
    try:
        with mmap.mmap(-1, _PAGE) as page:
            page.madvise(_POPULATE_WRITE)
    except OSError:  # without it, a child process would see memory that changes
        return "the kernel is older than Linux 5.14"
    return ""


class BlockPool:
    """The blocks of one stream. One thread lends and collects; any may drop the last reference."""

    def __init__(self, files: Sequence[int], block_bytes: int) -> None:
        """Maps the blocks. Raises `OSError`, or `ProtocolError` for a file that is too small."""
        self._mappings = [_Mapping(file, block_bytes) for file in files]
        self._free: deque[int] = deque()
        """Blocks to which no array refers any longer."""
        self._copied: deque[bool] = deque(maxlen=_RECENT)
        """Whether each of the last batches came in chunks, as the server had no block for it."""
        self._all_lent = False
        """Whether the trainer held all blocks at that time."""

    def lend(self, number: int, size: int) -> Array:
        """Returns the first bytes of a block, uint8[size]; the last view's end frees the block."""
        mapping = self._mappings[number - 1] if 0 < number <= len(self._mappings) else None
        if mapping is None or mapping.lent is not None:
            raise ProtocolError(f"a batch in block {number}, which is no free one")
        if not 0 <= size <= mapping.size:
            raise ProtocolError(f"a batch of {size} bytes in a block of {mapping.size}")
        memory: Any = (ctypes.c_ubyte * size).from_address(mapping.address)
        memory.mapping = mapping  # it must live as long
        # The callback may run at any point of any thread: a lock would deadlock.
        free = self._free
        with _fork_lock:
            mapping.lent = weakref.ref(memory, lambda _: free.append(number))
        lent: Array = np.frombuffer(memory, np.uint8)
        self._copied.append(False)
        return lent

    def on_copied(self) -> None:
        """Counts a batch that came in chunks."""
        self._copied.append(True)
        self._all_lent = all(mapping.lent is not None for mapping in self._mappings)

    @property
    def shortage(self) -> str:
        """Why most of the last batches were not in a block; empty if they were, or are few."""
        if sum(self._copied) <= _RECENT // 2:
            return ""
        reason = (
            f"the trainer keeps arrays of all {len(self._mappings)} blocks"
            if self._all_lent
            else "the server's --memory-limit has no room for more blocks"
        )
        return f"{reason} ({sum(self._copied)} of the last {len(self._copied)} batches)"

    @property
    def has_free(self) -> bool:
        """Whether `collect` would return a block."""
        return bool(self._free)

    def collect(self) -> list[int]:
        """Returns the blocks that can be returned to the server."""
        numbers = [self._free.popleft() for _ in range(len(self._free))]
        for number in numbers:
            self._mappings[number - 1].drop_written_pages()
            self._mappings[number - 1].lent = None
        return numbers


class _Mapping:
    """One block, mapped privately."""

    def __init__(self, file: int, size: int) -> None:
        if os.fstat(file).st_size < size:
            raise ProtocolError(f"a block of {os.fstat(file).st_size} bytes instead of {size}")
        self.size = size
        self.lent: weakref.ref[Any] | None = None
        """The memory of the block, until its end is collected."""
        self.address = map_file(file, size, mmap.MAP_PRIVATE)
        unmap_after(self, self.address, size)
        with _fork_lock:
            _mappings.add(self)

    def drop_written_pages(self) -> None:
        """Drops this process's own copies of pages, so that it sees the server's again."""
        if self._has_written_pages():
            self._advise(_DONTNEED)

    def before_fork(self) -> None:
        """Makes a lent block this process's own, as a child process is about to inherit it."""
        lent = self.lent  # another thread may collect it
        # The reference to the memory keeps the server's next batch away from the pages.
        if lent is not None and (_memory := lent()) is not None:
            self._advise(_POPULATE_WRITE)

    def _has_written_pages(self) -> bool:
        pages = -(-self.size // _PAGE)
        try:
            file = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # some sandboxes have none
            return True
        try:
            content = os.pread(file, 8 * pages, 8 * (self.address // _PAGE))
        except OSError:
            return True
        finally:
            os.close(file)
        entries = np.frombuffer(content, np.uint64)
        own = (entries & _PRESENT_OR_SWAPPED != 0) & (entries & _OF_FILE == 0)
        return len(entries) < pages or bool(own.any())

    def _advise(self, advice: int) -> None:
        _libc().madvise(self.address, self.size, advice)


def receive_blocks(path: str, key: bytes, blocks: int, block_bytes: int) -> BlockPool:
    """Receives a stream's blocks from the second socket at `path`. Raises `OSError`, also if the
    server is short of descriptors or does not know the key, or `ProtocolError`."""
    if not 0 < blocks <= MAX_BLOCKS:
        raise ProtocolError(f"an offer of {blocks} blocks")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(path)
        connection.sendall(key)
        files = _receive_files(connection, blocks)
        try:
            if len(files) != blocks:
                raise ConnectionError(f"the server passed {len(files)} of {blocks} blocks")
            pool = BlockPool(files, block_bytes)
        finally:
            for file in files:
                os.close(file)
        connection.sendall(b"\1")
    return pool


def _receive_files(connection: socket.socket, count: int) -> list[int]:
    files = array.array("i")
    space = socket.CMSG_SPACE(count * files.itemsize)
    _, messages, flags, _ = connection.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) // files.itemsize * files.itemsize])
    if flags & socket.MSG_CTRUNC:
        for file in files:
            os.close(file)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return files.tolist()


_mappings: weakref.WeakSet[_Mapping] = weakref.WeakSet()
"""All blocks of this process, as arrays outlive the pools."""

_fork_lock = threading.RLock()
"""Held during a fork, so that no block is lent that the child process would not inherit."""


def _before_fork() -> None:
    _fork_lock.acquire()
    for mapping in tuple(_mappings):
        mapping.before_fork()


if sys.platform == "linux":
    released = _fork_lock.release
    os.register_at_fork(before=_before_fork, after_in_parent=released, after_in_child=released)


def map_file(file: int, size: int, flags: int) -> int:
    """Returns the address of a new mapping. `mmap.mmap` would keep a descriptor for each. Raises
    `OSError`."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc().mmap(None, size, protection, flags, file, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(address)


def unmap_after(owner: object, address: int, size: int) -> weakref.finalize[Any, Any]:
    """Ends a mapping with its owner, but not at exit, when arrays may still be in use."""
    end = weakref.finalize(owner, _libc().munmap, address, size)
    end.atexit = False
    return end


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    integer = ctypes.c_int
    libc.mmap.argtypes = [
        *(ctypes.c_void_p, ctypes.c_size_t, integer, integer, integer),
        ctypes.c_long,
    ]
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, integer]
    return libc
