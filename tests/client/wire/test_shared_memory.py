"""Blocks of shared memory in the trainer: private, returned once, and safe across a fork."""

from __future__ import annotations

import mmap
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.blocks import SIZE, SharingServer
from tests.harness.waiting import wait_until

from infeed.shared.errors import ProtocolError
from infeed.wire import shared_memory
from infeed.wire.shared_memory import BlockPool, receive_blocks

pytestmark = pytest.mark.usefixtures("few_objects")

PAGE = mmap.PAGESIZE


@pytest.fixture
def server() -> SharingServer:
    return SharingServer()


def test_a_batch_is_seen_without_a_copy(server: SharingServer) -> None:
    array = server.send(1, 7)
    assert (array.shape, array.dtype) == ((SIZE,), np.uint8)
    assert array.ctypes.data % PAGE == 0
    assert (array == 7).all()


def test_what_the_trainer_writes_is_its_own(server: SharingServer) -> None:
    array = server.send(1, 7)
    array[PAGE : PAGE + 5] = 1
    assert (server.memory[0] == 7).all()
    assert array.sum() == 7 * (SIZE - 5) + 5


@pytest.fixture(params=["pagemap", "no pagemap", "unreadable pagemap", "empty pagemap"])
def reuse(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[SharingServer, Any], Any]:
    """Writes to pages of an array, returns its block and gets the next batch in it."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    if request.param == "no pagemap":
        monkeypatch.setattr("os.open", refuse)
    elif request.param == "unreadable pagemap":
        monkeypatch.setattr("os.pread", refuse)
    elif request.param == "empty pagemap":
        monkeypatch.setattr("os.pread", lambda *_: b"")

    def run(server: SharingServer, offset: int) -> Any:
        array = server.send(1, 7)
        assert array[-1] == array[0] == 7  # these pages are mapped, unwritten
        array[offset] = 1
        del array
        assert server.pool.collect() == [1]
        return server.send(1, 9)

    return run


@pytest.mark.parametrize("offset", [0, PAGE + 1, SIZE - 1])
def test_a_written_page_does_not_hide_the_next_batch(
    server: SharingServer, reuse: Callable[[SharingServer, int], Any], offset: int
) -> None:
    assert (reuse(server, offset) == 9).all()


def test_a_block_is_free_when_its_last_view_is_gone(server: SharingServer) -> None:
    array = server.send(2, 7)
    views = [array[5:].view(np.uint8)[::2], memoryview(array), array.reshape(2, -1).T]
    del array
    while views:
        assert server.pool.collect() == []
        views.pop()
    assert server.pool.has_free
    assert server.pool.collect() == [2]
    assert not server.pool.has_free


@pytest.mark.parametrize(
    ("number", "size", "problem"),
    [
        (0, 1, "block 0, which is no free one"),
        (3, 1, "block 3, which is no free one"),
        (-1, 1, "block -1, which is no free one"),
        (2, 1, "block 2, which is no free one"),
        (1, SIZE + 1, f"a batch of {SIZE + 1} bytes in a block of {SIZE}"),
        (1, -1, "a batch of -1 bytes"),
    ],
)
def test_an_invalid_block_is_an_error(
    server: SharingServer, number: int, size: int, problem: str
) -> None:
    kept = server.send(2, 7)
    with pytest.raises(ProtocolError, match=re.escape(problem)):
        server.pool.lend(number, size)
    assert (kept == 7).all()


def test_a_block_that_was_not_collected_is_not_lent(server: SharingServer) -> None:
    server.send(1, 7)  # and dropped
    with pytest.raises(ProtocolError):
        server.pool.lend(1, SIZE)


def test_files_that_are_too_small_are_an_error() -> None:
    file = os.memfd_create("infeed-test")
    os.ftruncate(file, PAGE)
    with pytest.raises(ProtocolError, match=f"a block of {PAGE} bytes instead of {SIZE}"):
        BlockPool([file], SIZE)
    os.close(file)


def maps() -> list[str]:
    """Returns the mappings of the trainer, which are private, in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "memfd:infeed-test" in line and " rw-p " in line]


def test_arrays_outlive_the_pool_and_then_free_the_memory() -> None:
    server = SharingServer()
    array = server.send(1, 7)
    del server
    assert (array == 7).all()
    assert len(maps()) == 1
    del array
    assert maps() == []


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], bool]], Callable[[], bool]]]:
    """Forks a child, which runs a check when the returned function is called."""
    children: list[int] = []

    def run(check: Callable[[], bool]) -> Callable[[], bool]:
        begin, go = os.pipe()
        child = os.fork()
        if not child:
            os.read(begin, 1)
            os._exit(not check())
        children.append(child)

        def result() -> bool:
            os.write(go, b"\1")
            status = os.waitpid(children.pop(), 0)[1]
            os.close(begin)
            os.close(go)
            return status == 0

        return result

    yield run
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_process_keeps_its_values(server: SharingServer, fork: Any) -> None:
    kept = [server.send(1, 7)]
    kept[0][0] = 8
    in_child = fork(lambda: kept[0][0] == 8 and bool((kept[0][1:] == 7).all()))
    kept.clear()
    assert server.pool.collect() == [1]
    again = server.send(1, 9)
    assert (again == 9).all()
    assert in_child()


def test_a_child_process_can_have_a_feed_of_its_own(server: SharingServer, fork: Any) -> None:
    array = server.send(1, 7)

    def check() -> bool:
        values: list[int] = []
        # Another thread than the one that forked, as the one of a feed that reads.
        thread = threading.Thread(target=lambda: values.append(SharingServer().send(1, 9)[0]))
        thread.daemon = True
        thread.start()
        thread.join(30)
        return values == [9] and bool((array == 7).all())

    assert fork(check)()


def test_a_block_is_not_free_while_it_is_copied(
    server: SharingServer, fork: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, found = [server.send(1, 7)], []
    advise = shared_memory._Mapping._advise

    def drop(mapping: Any, advice: int) -> None:
        arrays.clear()
        found.extend(server.pool.collect())
        advise(mapping, advice)

    monkeypatch.setattr(shared_memory._Mapping, "_advise", drop)
    assert fork(lambda: True)()
    assert found == []
    assert server.pool.collect() == [1]
    assert (server.send(1, 9) == 9).all()


@pytest.mark.parametrize("blocks", [-1, 0, 129, 1 << 40])
def test_an_offer_of_a_wrong_number_of_blocks_is_an_error(tmp_path: Path, blocks: int) -> None:
    with pytest.raises(ProtocolError, match=f"an offer of {blocks} blocks"):
        receive_blocks(str(tmp_path / "socket"), b"key", blocks, SIZE)


@pytest.fixture
def passing(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """Listens at a second socket, which passes a number of blocks; returns its path."""
    with ExitStack() as stack:

        def run(count: int) -> str:
            path = str(tmp_path / "socket")
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(path)
            listener.listen()

            def pass_blocks() -> None:
                files = [os.memfd_create("infeed-passed", os.MFD_CLOEXEC) for _ in range(count)]
                with listener.accept()[0] as connection:
                    connection.recv(16)
                    for file in files:
                        os.ftruncate(file, SIZE)
                    socket.send_fds(connection, [b"\1"], files)
                    for file in files:
                        os.close(file)
                    connection.recv(1)

            thread = threading.Thread(target=pass_blocks, daemon=True)
            thread.start()
            stack.callback(thread.join, 30)
            return path

        yield run


def passed_files() -> list[int]:
    """Returns the descriptors of blocks that are open in this process."""
    files = [int(link.name) for link in Path("/proc/self/fd").iterdir()]
    return [file for file in files if "infeed-passed" in target_of(file)]


def target_of(file: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{file}").readlink())
    except OSError:  # the one of the listing
        return ""


def test_blocks_have_no_descriptor(passing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inheritable: list[bool] = []
    pool_of = BlockPool

    def look(files: list[int], size: int) -> BlockPool:
        inheritable.extend(map(os.get_inheritable, files))
        return pool_of(files, size)

    monkeypatch.setattr(shared_memory, "BlockPool", look)
    pool = receive_blocks(passing(2), b"key", 2, SIZE)
    assert inheritable == [False, False]
    assert pool.lend(2, SIZE).size == SIZE
    wait_until(lambda: not passed_files(), "they are closed")


def test_fewer_blocks_than_were_offered_are_an_error(passing: Any) -> None:
    with pytest.raises(ConnectionError, match="the server passed 1 of 2 blocks"):
        receive_blocks(passing(1), b"key", 2, SIZE)
    wait_until(lambda: not passed_files(), "they are closed")


def test_another_system_has_no_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared_memory.unsupported() == ""
    monkeypatch.setattr("sys.platform", "darwin")
    shared_memory.unsupported.cache_clear()
    assert "darwin" in shared_memory.unsupported()
    shared_memory.unsupported.cache_clear()
