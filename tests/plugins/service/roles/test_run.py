"""Tests of the processes of the roles, with a dispatcher that is none of TensorFlow."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.waiting import wait_until

from infeed_server.serving.health import Readiness
from infeed_service.options import DispatcherOptions
from infeed_service.roles import run
from infeed_service.roles.run import add_dispatcher_metrics, role_metrics, serve_dispatcher


class Dispatcher:
    """A dispatcher that does nothing."""

    address = local_address = "127.0.0.1:1"

    def __init__(self, options: DispatcherOptions) -> None:
        self.work_dir = Path(str(options.work_dir))

    def start(self) -> None:
        pass

    stop = start


def readiness(address: str | None) -> tuple[bool, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=60) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
    state: dict[str, Any] = json.loads(body)
    return state["ready"], state["reason"]


def test_dispatcher_that_cannot_write_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DispatcherRole", Dispatcher)
    monkeypatch.setattr(run, "WORK_DIR_CHECK_INTERVAL_SECONDS", 0.01)
    folder = tmp_path / "work"
    folder.mkdir()
    # The real one ends the process some seconds after the request.
    stop: Any = SimpleNamespace(is_set=lambda _: False, wait=lambda _: None)
    seen: list[tuple[bool, str]] = []

    def on_serving(_: str, control: str | None) -> None:
        seen.append(readiness(control))
        folder.rmdir()
        wait_until(lambda: not readiness(control)[0], "it is not ready")
        seen.append(readiness(control))
        folder.mkdir()
        wait_until(lambda: readiness(control)[0], "it is ready again")

    options = DispatcherOptions(listen="127.0.0.1:0", http="127.0.0.1:0", work_dir=str(folder))
    serve_dispatcher(options, stop, on_serving)
    assert seen[0] == (True, "serving workers and trainers at 127.0.0.1:1")
    assert f"cannot write to its work directory {folder}" in seen[1][1]


def test_metrics_have_the_state_of_each_worker(tmp_path: Path) -> None:
    states = {"alive": Readiness(True, ""), "silent": Readiness(False, "")}
    liveness: Any = SimpleNamespace(readiness=lambda: states, ended_tasks=4)
    metrics = role_metrics("dispatcher")
    add_dispatcher_metrics(metrics, liveness, tmp_path)
    value = metrics.registry.get_sample_value
    assert value("infeed_dispatcher_workers") == 2
    assert value("infeed_dispatcher_lost_tasks_total") == 4
    reachable = [value("infeed_dispatcher_worker_reachable", {"worker": name}) for name in states]
    assert reachable == [1, 0]
    assert (value("infeed_dispatcher_work_dir_free_bytes") or 0) > 0
