"""Blocks of memory that a stream's client on this host maps, instead of receiving chunks.

Each stream has blocks of its own, so a trainer sees no other's batches. A second socket beside the
server's passes them, once, to the client that has the stream's key: gRPC cannot pass descriptors.
Seals keep the client from writing to them, and from shrinking what the server writes to.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hmac
import logging
import mmap
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array
from infeed.v1 import stream_pb2
from infeed.wire.batch import EncodedBatch
from infeed.wire.shared_memory import (
    KEY_BYTES,
    MAX_BLOCKS,
    SOCKET_SUFFIX,
    map_file,
    unmap_after,
)
from infeed_server.engines.memory_budget import MemoryBudget

log = logging.getLogger(__name__)

_SEALS = 0x1 | 0x2 | 0x4 | 0x10
"""Linux seals SEAL, SHRINK, GROW and FUTURE_WRITE; the last leaves the server's mapping
writable."""

_ADD_SEALS = 1033

_NOEXEC_SEAL, _ALLOW_SEALING = 0x8, 0x2
"""Flags of `memfd_create`; the first exists since Linux 6.3, where a host can require it."""

_PEER_TIMEOUT_SECONDS = 1.0
"""Time for a client to send its key, and again to map the blocks."""

_MAX_PEERS = 64
"""Maximum peers of the second socket at a time, so that a silent one delays no other."""

_files_lock = threading.Lock()
"""Held while the files of a stream's blocks are open, since a process may open only a few files."""

_RETRY_SECONDS = 0.1
"""Pause when no descriptor is free for a connection."""


class BlockPool:
    """The blocks of one stream. They have no memory until they are used. Thread-safe."""

    def __init__(self, count: int, block_bytes: int, budget: MemoryBudget) -> None:
        self.key = secrets.token_bytes(KEY_BYTES)
        self.block_bytes = block_bytes
        self.count = min(count, MAX_BLOCKS)
        self._budget = budget
        self._memory: list[Array] = []
        self._free: list[int] = []
        self._lent: set[int] = set()
        self._used = 0
        """Number of blocks that have memory; they are the first ones."""
        self._closed = False
        self._lock = threading.Lock()

    def share(self, connection: socket.socket) -> None:
        """Passes the blocks to the client, and uses them once it has mapped them. Raises
        `OSError`."""
        files: list[int] = []
        memory: list[Array] = []
        with _files_lock:
            try:
                for _ in range(self.count):
                    files.append(_create_file(self.block_bytes))
                    memory.append(_map(files[-1], self.block_bytes))
                    fcntl.fcntl(files[-1], _ADD_SEALS, _SEALS)
                socket.send_fds(connection, [b"\1"], files)
            finally:
                for file in files:
                    os.close(file)
        if connection.recv(1):
            with self._lock:
                if not self._closed:
                    self._memory, self._free = memory, list(range(self.count, 0, -1))

    def place(self, request: stream_pb2.BatchRequest, batch: EncodedBatch) -> EncodedBatch:
        """Returns the batch with its payload in a block; unchanged if none is free."""
        if batch.payload.size > self.block_bytes or (block := self._take()) is None:
            return batch
        number, memory = block
        return batch.in_block(request, number, memory)

    def free(self, numbers: Sequence[int]) -> None:
        """Takes blocks back. Raises `InvalidRequestError` for one that the client does not hold."""
        with self._lock:
            for number in () if self._closed else numbers:
                if number not in self._lent:
                    raise InvalidRequestError(f"block {number} was returned, but was not lent")
                self._lent.remove(number)
                self._free.append(number)

    def close(self) -> None:
        """Frees the blocks; the client's mappings stay valid."""
        with self._lock:
            self._closed = True
            self._budget.release(self._used * self.block_bytes)
            self._memory, self._free, self._used = [], [], 0

    def _take(self) -> tuple[int, Array] | None:
        with self._lock:
            if not self._free:
                return None
            number = self._free[-1]  # the one that was returned last, else the lowest
            if number > self._used:
                if not self._budget.reserve(self.block_bytes, self._used * self.block_bytes):
                    return None
                self._used = number
            self._free.pop()
            self._lent.add(number)
            return number, self._memory[number - 1]


class SharedMemory:
    """The second socket of a server at a Unix socket, and the pools of its streams."""

    def __init__(self, path: str, budget: MemoryBudget) -> None:
        """Listens beside the socket at `path`, on Linux only."""
        self._budget = budget
        self._path = Path(path + SOCKET_SUFFIX)
        self._free_peers = threading.Semaphore(_MAX_PEERS)
        self._pools: dict[bytes, BlockPool] = {}
        """Pools that no client has connected for yet, by key."""
        self.refusal = ""
        """Why no client gets blocks; empty if they do."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            os.close(_create_file(0))
            if self._path.is_socket():  # a leftover, since this server owns the path
                self._path.unlink()
            self._socket.bind(str(self._path))
            self._socket.listen()
        except (OSError, AttributeError) as error:
            self.refusal = f"the server cannot share memory at {self._path}: {error}"
            log.warning("%s; batches are sent in chunks", self.refusal)
            self._socket.close()
        else:
            threading.Thread(target=self._accept, name="infeed-blocks", daemon=True).start()

    def open_pool(self, count: int, block_bytes: int) -> BlockPool:
        """Opens the pool of a stream; it must be closed with `close_pool`."""
        pool = BlockPool(count, block_bytes, self._budget)
        self._pools[pool.key] = pool
        return pool

    def close_pool(self, pool: BlockPool) -> None:
        self._pools.pop(pool.key, None)
        pool.close()

    def stop(self) -> None:
        """Ends the socket; the blocks of open streams stay in use."""
        if self.refusal:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                    return  # it was stopped
                time.sleep(_RETRY_SECONDS)
                continue
            self._free_peers.acquire()
            threading.Thread(target=self._share, args=(connection,), daemon=True).start()

    def _share(self, connection: socket.socket) -> None:
        """Passes blocks to a client; if that fails, the client receives chunks."""
        with connection:
            connection.settimeout(_PEER_TIMEOUT_SECONDS)
            try:
                if (pool := self._pool_of(connection.recv(KEY_BYTES))) is not None:
                    pool.share(connection)
            except OSError as error:
                log.warning("sharing memory with a trainer failed: %s", error)
            finally:
                self._free_peers.release()

    def _pool_of(self, key: bytes) -> BlockPool | None:
        """Removes and returns the pool of a key, which is valid once."""
        for known in tuple(self._pools):
            if hmac.compare_digest(known, key):
                return self._pools.pop(known, None)
        return None


def _map(file: int, size: int) -> Array:
    memory: Any = (ctypes.c_ubyte * size).from_address(map_file(file, size, mmap.MAP_SHARED))
    unmap_after(memory, ctypes.addressof(memory), size)
    array: Array = np.frombuffer(memory, np.uint8)
    return array


def _create_file(size: int) -> int:
    """Returns a descriptor of new memory. Raises `OSError`."""
    try:
        file = os.memfd_create("infeed-block", os.MFD_CLOEXEC | _ALLOW_SEALING | _NOEXEC_SEAL)
    except OSError:  # the kernel is older
        file = os.memfd_create("infeed-block", os.MFD_CLOEXEC | _ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
    except OSError:
        os.close(file)
        raise
    return file
