"""Tests of `processes/priority.py`, and of the threads that use it."""

from __future__ import annotations

import os
import sys
import threading
import urllib.request
from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from infeed_server.control.calls import Calls
from infeed_server.control.http_server import ControlServer
from infeed_server.processes.daemon_executor import DaemonExecutor
from infeed_server.processes.priority import raise_priority, reset_priority, unraised_priority

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no priority of threads")

may_raise = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def niceness() -> int:
    """Returns that of this thread, less that of the process."""
    process = os.getpriority(os.PRIO_PROCESS, os.getpid())
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) - process


def on_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@may_raise
def test_a_thread_is_raised_and_reset_alone() -> None:
    seen = []

    def run() -> None:
        raise_priority()
        seen.append(niceness())
        on_thread(lambda: seen.append(niceness()))  # it inherits the priority
        with unraised_priority():
            on_thread(lambda: seen.append(niceness()))
        seen.append(niceness())
        reset_priority()
        seen.append(niceness())

    on_thread(run)
    assert seen == [-10, -10, 0, -10, 0]
    assert niceness() == 0


def test_without_the_right_the_priority_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    raise_priority()
    reset_priority()
    assert niceness() == 0


@may_raise
def test_only_the_event_loop_of_the_control_plane_is_raised() -> None:
    seen = {}
    executors = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen["loop"] = niceness()
        seen["call"] = await Calls(blocking=True).run("any", niceness)
        executors.append(DaemonExecutor("test"))
        seen["daemon"] = executors[0].submit(niceness).result(60)
        await JSONResponse({"path": Request(scope).url.path})(scope, receive, send)

    with (
        ControlServer(app, "127.0.0.1", 0) as server,
        urllib.request.urlopen(f"http://{server.address}/", timeout=60) as response,
    ):
        assert response.status == 200
    executors[0].close()
    assert seen == {"loop": -10, "call": 0, "daemon": 0}
