"""Shared memory of the server: passed once to the client with the key, which can only read it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.harness.waiting import wait_until

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import FieldSpec
from infeed.v1 import stream_pb2
from infeed.wire.batch import Payload, encode_batch
from infeed.wire.shared_memory import SOCKET_SUFFIX, receive_blocks
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.rpc import shared_memory
from infeed_server.rpc.shared_memory import BlockPool, SharedMemory

SIZE = 1 << 16
SPEC = (FieldSpec("x", "uint8", (SIZE,)),)
REQUEST = stream_pb2.BatchRequest(start=4, count=1)


def batch(value: int, *, shared: bool = False) -> Any:
    arrays = {"x": np.full((1, SIZE), value, np.uint8)}
    payload = Payload(SPEC, arrays, shared=shared)
    return encode_batch(REQUEST, 4, 0, payload, np.array([0]), np.array([True]))


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(1 << 30)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "server")


@pytest.fixture
def memory(path: str, budget: MemoryBudget) -> Iterator[SharedMemory]:
    memory = SharedMemory(path, budget)
    yield memory
    memory.stop()


@pytest.fixture
def share(memory: SharedMemory, path: str) -> Callable[[BlockPool], Any]:
    """Gets the blocks of a pool as a client does."""

    def run(pool: BlockPool) -> Any:
        received = receive_blocks(path + SOCKET_SUFFIX, pool.key, pool.count, pool.block_bytes)
        wait_until(lambda: pool.place(REQUEST, batch(1)).header.block, "the pool is in use")
        pool.free([pool.count and 1])
        return received

    return run


def descriptors(pool: BlockPool, answer: bytes = b"\1") -> list[int]:
    """Returns what a client gets, without mapping it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=pool.share, args=(ours,))
        thread.start()
        _, files, *_ = socket.recv_fds(theirs, 1, pool.count)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        thread.join()
    return files


def test_batches_are_placed_in_free_blocks(
    memory: SharedMemory, share: Any, budget: MemoryBudget
) -> None:
    pool = memory.open_pool(2, SIZE)
    assert not pool.place(REQUEST, batch(0)).header.block  # no client has the blocks
    client = share(pool)
    placed = [pool.place(REQUEST, batch(value)) for value in (5, 6, 7)]
    assert [encoded.header.block for encoded in placed] == [1, 2, 0]
    assert [encoded.payload.size for encoded in placed] == [0, 0, SIZE]
    arrays = [client.lend(number, SIZE) for number in (1, 2)]
    assert [int(lent[0]) for lent in arrays] == [5, 6]
    assert budget.used == budget.reserved == 2 * SIZE
    pool.free([2])
    assert pool.place(REQUEST, batch(8)).header.block == 2
    assert (arrays[1] == 8).all()
    memory.close_pool(pool)
    assert budget.used == budget.reserved == 0
    assert not pool.place(REQUEST, batch(9)).header.block
    assert (arrays[0] == 5).all()


def test_a_shared_payload_is_placed(memory: SharedMemory, share: Any) -> None:
    pool = memory.open_pool(1, SIZE)
    client = share(pool)
    encoded = batch(5, shared=True)
    assert pool.place(REQUEST, encoded).header.payload_checksum
    assert (client.lend(1, SIZE) == 5).all()
    memory.close_pool(pool)


def test_memory_is_taken_as_it_is_used(
    budget: MemoryBudget, memory: SharedMemory, share: Any
) -> None:
    budget.limit = 8 * 3 * SIZE
    pool = memory.open_pool(64, SIZE)
    share(pool)
    blocks = [pool.place(REQUEST, batch(1)).header.block for _ in range(5)]
    assert blocks == [1, 2, 0, 0, 0]  # what it holds is at most an eighth of what is free
    memory.close_pool(pool)
    assert budget.used == 0


def test_a_block_that_is_not_lent_cannot_be_returned(memory: SharedMemory, share: Any) -> None:
    pool = memory.open_pool(1, SIZE)
    share(pool)
    for number in (0, 1, 2, -1):
        with pytest.raises(InvalidRequestError, match=f"block {number} was returned"):
            pool.free([number])
    pool.place(REQUEST, batch(1))
    with pytest.raises(InvalidRequestError):
        pool.free([1, 1])
    memory.close_pool(pool)


def test_a_block_that_is_returned_late_takes_no_memory(
    memory: SharedMemory, share: Any, budget: MemoryBudget
) -> None:
    pool = memory.open_pool(1, SIZE)
    share(pool)
    pool.place(REQUEST, batch(1))
    memory.close_pool(pool)
    pool.free([1])
    assert not pool.place(REQUEST, batch(1)).header.block
    assert budget.used == 0


def test_a_client_that_has_not_mapped_the_blocks_gets_none(budget: MemoryBudget) -> None:
    pool = BlockPool(1, SIZE, budget)
    descriptors(pool, answer=b"")
    assert not pool.place(REQUEST, batch(1)).header.block


def test_blocks_that_are_mapped_after_the_end_are_not_used(budget: MemoryBudget) -> None:
    pool = BlockPool(1, SIZE, budget)
    pool.close()
    descriptors(pool)
    assert not pool.place(REQUEST, batch(1)).header.block
    assert budget.used == 0


def test_a_server_short_of_descriptors_shares_nothing(
    memory: SharedMemory, share: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("os.memfd_create", refuse)
    pool = memory.open_pool(3, SIZE)
    with pytest.raises(OSError, match="the server passed 0 of 3 blocks"):
        share(pool)
    memory.close_pool(pool)


def test_a_kernel_without_the_noexec_flag_shares_memory(
    memory: SharedMemory, share: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, no_exec_seal = os.memfd_create, 8

    def create_before_linux_6_3(name: str, flags: int) -> int:
        if flags & no_exec_seal:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return create(name, flags)

    monkeypatch.setattr("os.memfd_create", create_before_linux_6_3)
    pool = memory.open_pool(1, SIZE)
    share(pool)
    memory.close_pool(pool)


# --- attacks of a client ---


def refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES, errno.EBUSY)
    return False


def test_a_client_can_only_read(budget: MemoryBudget) -> None:
    pool = BlockPool(1, SIZE, budget)
    (file,) = descriptors(pool)
    pool.place(REQUEST, batch(5))
    link = f"/proc/self/fd/{file}"
    shared = mmap.mmap(file, SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
    address = np.frombuffer(shared, np.uint8).ctypes.data
    protect, remove = libc_call("mprotect"), libc_call("madvise")
    attacks: dict[str, Callable[[], object]] = {
        "write": lambda: os.pwrite(file, b"x", 0),
        "write to it opened again": lambda: Path(link).write_bytes(b"x"),
        "map it writable": lambda: mmap.mmap(file, SIZE),
        "make the mapping writable": lambda: protect(address, SIZE, 3),
        "punch a hole": lambda: libc_call("fallocate")(file, 3, 0, SIZE),
        "remove pages": lambda: remove(address, SIZE, 9),
        "truncate": lambda: os.ftruncate(file, 0),
        "grow": lambda: os.ftruncate(file, 2 * SIZE),
        "seal it for the server": lambda: fcntl.fcntl(file, 1033, 8),
        "seal it otherwise": lambda: fcntl.fcntl(file, 1033, 0),
    }
    assert [name for name, attack in attacks.items() if not refused(attack)] == []
    assert os.pread(file, SIZE, 0) == b"\5" * SIZE
    os.close(file)
    pool.close()


def libc_call(name: str) -> Callable[..., None]:
    """Returns a function of the C library that raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*arguments: int) -> None:
        wide = [ctypes.c_size_t(value) for value in arguments]
        if name == "fallocate":
            wide = [ctypes.c_int(value) for value in arguments[:2]]
            wide += [ctypes.c_long(value) for value in arguments[2:]]
        if getattr(libc, name)(*wide):
            raise OSError(ctypes.get_errno(), name)

    return call


def test_a_key_serves_once_and_only_its_own_pool(
    memory: SharedMemory, path: str, share: Any
) -> None:
    pools = [memory.open_pool(1, SIZE) for _ in range(2)]
    clients = [share(pool) for pool in pools]
    for value, pool in enumerate(pools, 5):
        pool.place(REQUEST, batch(value))
    assert [int(client.lend(1, SIZE)[0]) for client in clients] == [5, 6]
    unused, closed = (memory.open_pool(1, SIZE) for _ in range(2))
    memory.close_pool(closed)
    for key in (pools[0].key, closed.key, unused.key[:15], unused.key[:1], bytes(16), b"short"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path + SOCKET_SUFFIX)
            connection.sendall(key)
            data, files, *_ = socket.recv_fds(connection, 1, 8)
            assert (data, files) == (b"", [])
    share(unused)
    for pool in (*pools, unused):
        memory.close_pool(pool)


def test_a_client_that_says_nothing_is_disconnected(
    memory: SharedMemory, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_PEER_TIMEOUT_SECONDS", 0.01)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(30)
        silent.connect(path + SOCKET_SUFFIX)
        assert silent.recv(1) == b""


def test_a_client_that_says_nothing_delays_no_other(
    path: str, budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_PEER_TIMEOUT_SECONDS", 600.0)
    monkeypatch.setattr(shared_memory, "_MAX_PEERS", 2)
    memory = SharedMemory(path, budget)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(path + SOCKET_SUFFIX)
        for _ in range(3):  # the others have one place, one after the other
            pool = memory.open_pool(1, SIZE)
            receive_blocks(path + SOCKET_SUFFIX, pool.key, 1, SIZE)
            memory.close_pool(pool)
    memory.stop()


def test_nothing_is_left_open(memory: SharedMemory, share: Any) -> None:
    def count() -> int:
        maps = Path("/proc/self/maps").read_text().count("memfd:infeed-block")
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return maps + sum("infeed-block" in str(link.readlink()) for link in links)

    before = count()
    pool = memory.open_pool(3, SIZE)
    client = share(pool)
    assert count() == before + 2 * 3  # a mapping of each end, and no descriptor
    memory.close_pool(pool)
    del pool, client
    assert count() == before


# --- the server ---


def test_a_leftover_is_replaced_and_the_socket_removed(path: str, budget: MemoryBudget) -> None:
    leftover = socket.socket(socket.AF_UNIX)
    leftover.bind(path + SOCKET_SUFFIX)
    leftover.close()
    memory = SharedMemory(path, budget)
    assert memory.refusal == ""
    memory.stop()
    assert not Path(path + SOCKET_SUFFIX).exists()


def test_a_socket_that_cannot_be_bound_is_a_refusal(tmp_path: Path, budget: MemoryBudget) -> None:
    memory = SharedMemory(str(tmp_path / "missing" / "server"), budget)
    assert f"cannot share memory at {tmp_path}/missing/server.blocks: [Errno 2]" in memory.refusal
    memory.stop()


def test_a_stream_over_tcp_has_no_shared_memory(new_call: Any) -> None:
    call = new_call().open(blocks=4)
    opened = call.next().opened
    assert opened.shared_memory.refusal == "the server does not listen on a Unix socket"
    assert not opened.shared_memory.key
    call.request(0, free_blocks=[1]).half_close()
    _, error = call.rest()
    assert isinstance(error, grpc.RpcError)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "without shared memory" in str(error.details())
