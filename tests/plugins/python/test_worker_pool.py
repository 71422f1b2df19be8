"""Tests of `worker_pool.py`: answers, workers that end, and the end of the pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.children import is_alive
from tests.harness.waiting import wait_until

from infeed import ServerError, SourceError
from infeed_python import worker_pool
from infeed_python.worker_pool import PoolClosedError, WorkerEndedError, WorkerPool

NewPool = Callable[..., WorkerPool]


@pytest.fixture
def new_pool(tmp_path: Path) -> Iterator[NewPool]:
    pools: list[WorkerPool] = []

    def start(count: int = 1, handler: str = "obey", argument: Any = str(tmp_path)) -> WorkerPool:
        pools.append(
            WorkerPool("test", count, f"tests.harness.worker_handlers:{handler}", argument)
        )
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()
        assert pool.pids == []


def test_requests_are_answered(new_pool: NewPool) -> None:
    pool = new_pool(2, "echo", {"a": 1})
    requests = [np.arange(number) for number in range(20)]
    answers = [pool.submit(request) for request in requests]
    for request, answer in zip(requests, answers, strict=True):
        argument, echoed, pid, has_tensorflow = answer.result()
        assert argument == {"a": 1}
        np.testing.assert_array_equal(echoed, request)
        assert pid in pool.pids
        assert not has_tensorflow


def test_errors_of_the_handler_are_raised_here(new_pool: NewPool) -> None:
    pool = new_pool()
    with pytest.raises(SourceError, match=r"^the disk is away$") as caught:
        pool.submit("fail").result()
    assert caught.value.metadata == {"file": "a.bin"}
    with pytest.raises(ServerError, match="KeyError: 'a mistake of infeed'"):
        pool.submit("error").result()
    assert [pool.submit("").result()] == pool.pids


def test_request_of_a_worker_that_ends_is_repeated(new_pool: NewPool, tmp_path: Path) -> None:
    pool = new_pool()
    before = pool.submit("").result()
    assert pool.submit(("exit once", 3)).result() != before
    assert not is_alive(before)
    assert len((tmp_path / "requests").read_text().split()) == 3


@pytest.mark.parametrize(
    ("request_", "ending"),
    [(("exit", 3), "exit status 3"), (("kill", signal.SIGSEGV), r"signal 11 \(.*\)")],
)
def test_request_that_ends_each_worker_fails(
    new_pool: NewPool, tmp_path: Path, request_: Any, ending: str
) -> None:
    pool = new_pool()
    with pytest.raises(WorkerEndedError, match=f"^{ending}$"):
        pool.submit(request_).result()
    assert len(set((tmp_path / "requests").read_text().split())) == 4
    assert pool.submit("").result() in pool.pids


def test_forked_process_does_not_answer(new_pool: NewPool) -> None:
    pool = new_pool()
    assert [pool.submit("fork").result()] == pool.pids
    assert [pool.submit("").result()] == pool.pids


def test_end_is_noticed_though_a_forked_process_lives_on(new_pool: NewPool, tmp_path: Path) -> None:
    pool = new_pool()
    answer = pool.submit("fork and end once")
    try:
        assert [answer.result(timeout=20)] == pool.pids
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_workers_print_to_standard_error(new_pool: NewPool, capfd: Any) -> None:
    new_pool().submit(("print", "noise")).result()
    assert capfd.readouterr() == ("", "noise\n")


LEFT_OPEN = """
import os
os.chdir({folder!r})
class Log:
    def __init__(self):
        self.file = open("log", "w")
        self.write = self.write_line
    def write_line(self, text):
        self.file.write(text)
log = Log()
log.write("one")
text = open("text", "w")
text.write("two")
"""


def test_files_that_the_user_left_open_are_written(new_pool: NewPool, tmp_path: Path) -> None:
    (tmp_path / "left_open.py").write_text(LEFT_OPEN.format(folder=str(tmp_path)))
    pool = new_pool(1, "leave_open")
    assert pool.submit(1).result() == 1
    pool.close()
    assert (tmp_path / "log").read_text() == "one"
    assert (tmp_path / "text").read_text() == "two"


def test_workers_ignore_ctrl_c(new_pool: NewPool) -> None:
    pool = new_pool()
    pid = pool.submit("").result()
    os.kill(pid, signal.SIGINT)
    assert pool.submit("").result() == pid


def test_close_kills_a_worker_that_hangs(
    new_pool: NewPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "_EXIT_TIMEOUT_SECONDS", 0.01)
    pool = new_pool()
    hanging, waiting = pool.submit("fork and hang"), pool.submit("")
    wait_until((tmp_path / "child").exists, "the request is at hand, and has forked")
    (pid,) = pool.pids
    pool.close()
    assert not is_alive(pid)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child), "the child of the worker has ended")
    for answer in (hanging, waiting):
        with pytest.raises(PoolClosedError):
            answer.result()
    with pytest.raises(PoolClosedError):
        pool.submit("")


PARENT = """
import sys, time
sys.path[:] = {path!r}
from infeed_python.worker_pool import WorkerPool
pool = WorkerPool("test", 1, "tests.harness.worker_handlers:obey", {folder!r})
print(pool.submit("").result(), flush=True)
pool.submit("hang")
time.sleep(1000)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = PARENT.format(path=sys.path, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        requests = tmp_path / "requests"
        wait_until(lambda: len(requests.read_text().split()) == 2, "the worker hangs")
        parent.kill()
    wait_until(lambda: not is_running(worker), "the worker ends with its parent")


def is_running(pid: int) -> bool:
    """Returns whether a process runs. If nothing reaps orphans, it stays a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
