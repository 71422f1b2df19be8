"""Tests of `processes/priority.py`, and of the threads that use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer

from infeed_server.processes.priority import LOWERED_BY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no priority of threads")

PROGRAM = """
import os, threading, urllib.request
from starlette.responses import JSONResponse
from infeed_server.control.calls import Calls
from infeed_server.control.http_server import ControlServer
from infeed_server.processes.daemon_executor import DaemonExecutor
from infeed_server.processes.priority import lower_priority, start_unlowered

before = os.getpriority(os.PRIO_PROCESS, 0)

def niceness():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) - before

def on_thread(start):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(niceness()))
    start(thread)
    thread.join()
    return seen[0]

async def app(scope, receive, send):
    executor = DaemonExecutor("test")
    pooled = await Calls(blocking=True).run("any", niceness)
    print("control", niceness(), pooled, executor.submit(niceness).result(60))
    executor.close()
    await JSONResponse({})(scope, receive, send)

print("usual", niceness(), on_thread(threading.Thread.start), on_thread(start_unlowered))
lower_priority()
lower_priority()
print("lowered", niceness(), on_thread(threading.Thread.start), on_thread(start_unlowered))
with ControlServer(app, "127.0.0.1", 0) as server:
    urllib.request.urlopen(f"http://{server.address}/", timeout=60).close()
"""


def test_a_lowered_process_starts_some_threads_unlowered() -> None:
    # In a process of its own: no thread of it can be raised again, unless by root.
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=600
    )
    by = lowered_by()
    assert run.stdout.splitlines() == [
        "usual 0 0 0",
        f"lowered {by} {by} 0",
        f"control 0 {by} {by}",
    ]


def test_in_a_sandbox_that_forbids_it_the_priority_stays() -> None:
    forbid = "import os\ndef forbid(*_): raise PermissionError\nos.setpriority = forbid\n"
    run = subprocess.run(
        [sys.executable, "-c", forbid + PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert run.stdout.splitlines() == ["usual 0 0 0", "lowered 0 0 0", "control 0 0 0"]


def test_the_control_plane_of_a_server_alone_is_not_lowered(
    nursery: Nursery, tmp_path: Path
) -> None:
    definition = tmp_path / "pipelines.yaml"
    np.savez(tmp_path / "few.npz", x=np.arange(10))
    definition.write_text("pipelines: {few: {source: {arrays: few.npz}, batch: {size: 5}}}\n")
    with InfeedServer(
        definition, tmp_path / "log", http="127.0.0.1:0", launch=nursery.start
    ) as server:
        seen = threads_by_niceness(server.pid)
    # The event loop, and the thread that started it.
    lowest = max(seen)
    assert seen == {lowest - lowered_by(): 2, lowest: seen.total() - 2}


def lowered_by() -> int:
    """Returns the additional niceness of a child process that is lowered; 19 is the most."""
    return min(LOWERED_BY, 19 - os.getpriority(os.PRIO_PROCESS, 0))


def threads_by_niceness(pid: int) -> Counter[int]:
    """Returns the number of a process's threads by niceness, its field 19 in Linux' table."""
    lines = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    # Fields are counted from 1, and the second, a name, may have spaces.
    return Counter(int(line.rpartition(")")[2].split()[19 - 3]) for line in lines)
