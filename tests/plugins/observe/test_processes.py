"""Processes of one server: their health and metrics, over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.harness.clock import ManualClock
from tests.harness.observed import observed
from tests.harness.waiting import TIMEOUT_SECONDS

from infeed_observe.http.access import Authorize
from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer
from infeed_observe.processes import ServerProcesses
from infeed_server.runtime.instruments import ProcessFacts
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import hash_token, new_token, require_token
from infeed_server.serving.health import Health, Readiness


class Process:
    """The control plane of one process."""

    def __init__(self, *names: str, authorize: Authorize | None = None) -> None:
        self.observer = observed(*names, bad=())
        self.health, self.metrics = Health(), self.observer.metrics
        state = ControlState(self.health, self.metrics.registry, "1", status=self.observer)
        self.server = ControlServer(create_app(state, None, authorize), "127.0.0.1", 0)
        self.server.start()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts processes with these pipelines: `start("a", "b")`."""
    started: list[Process] = []

    def make(*names: str, **options: Any) -> Process:
        started.append(Process(*names, **options))
        return started[-1]

    yield make
    for process in started:
        process.server.stop()


@pytest.fixture
def processes(start: Callable[..., Process]) -> list[Process]:
    return [start("a"), start("a", "b")]


def merged_of(
    addresses: Callable[[], list[str | None]], token: str = "", **options: Any
) -> ServerProcesses:
    """Returns the processes at these addresses as one server."""
    return ServerProcesses(ProcessFacts(ServerOptions(http=None), token, addresses), **options)


def exposed(processes: ServerProcesses) -> str:
    return generate_latest(processes.registry).decode()


def test_ready_when_all_processes_are(processes: list[Process]) -> None:
    health = merged_of(lambda: [process.server.address for process in processes])
    assert not health.overall.ready
    first, second = processes
    first.health.set("a", True, "fine")
    second.health.set("a", False, "making its first batch")
    second.health.set("b", True, "fine")
    health.update()
    assert not health.overall.ready
    assert health.overall.reason.startswith("1 of 2 not ready: process 1: 1 of 2 not ready: a: ")
    assert not health.parts["a"].ready
    assert health.parts["a"].reason == "process 1: making its first batch"
    assert health.parts["b"].ready
    second.health.set("a", True, "fine")
    health.update()
    assert (health.overall.ready, health.overall.reason) == (
        True,
        "every pipeline is ready, in 2 of 2 processes",
    )
    health.drain()
    assert (health.overall.ready, health.overall.reason) == (False, "shutting down")
    assert health.parts == dict.fromkeys("ab", health.overall)


def test_exited_process_leaves_the_others_ready(processes: list[Process]) -> None:
    first, _ = processes
    first.health.set("a", True, "fine")
    addresses = [first.server.address, None]
    health = merged_of(lambda: [*addresses])
    health.update()
    assert health.overall.ready
    reason = "every pipeline is ready, in 1 of 2 processes; restarting: process 1"
    assert health.overall.reason == reason
    assert health.parts["a"].ready
    assert 'process="1"' not in exposed(health)
    addresses[0] = None
    health.update()
    assert health.overall.reason == "none of 2 processes serves"
    assert not health.overall.ready


def test_processes_are_requested_at_once() -> None:
    """A hung process must not delay the others, or the restart of exited ones."""
    both = threading.Barrier(2)
    status = observed().to_json({"": Readiness(True, "fine")})

    async def ready(_: Request) -> JSONResponse:
        await asyncio.to_thread(both.wait, TIMEOUT_SECONDS)
        return JSONResponse(status)

    app = Starlette(routes=[Route("/api/v1/status", ready)])
    with ControlServer(app, "127.0.0.1", 0) as one, ControlServer(app, "127.0.0.1", 0) as two:
        health = merged_of(lambda: [one.address, two.address])
        health.update()
    assert health.overall.reason == "fine, in 2 of 2 processes"


def test_process_is_hung_from_its_first_missing_answer(processes: list[Process]) -> None:
    first, second = processes
    addresses: list[str | None] = [first.server.address, second.server.address]
    clock = ManualClock()
    health = merged_of(lambda: [*addresses], clock=clock)
    clock.now = 1000.0  # both ends paused, as in a frozen container: no silence
    health.update()
    assert health.hung(0) == []
    second.server.stop()
    health.update()
    clock.now += 9.9
    health.update()
    assert health.hung(10) == []
    clock.now += 0.1
    assert health.hung(10) == [1]
    addresses[1] = None  # restarting
    health.update()
    assert health.hung(0) == []


def test_processes_that_require_a_token_get_it(start: Callable[..., Process]) -> None:
    token = new_token()
    process = start("a", authorize=partial(require_token, hash_token(token)))
    for given, is_read in ((token, True), ("", False), ("infeed_other", False)):
        merged = merged_of(lambda: [process.server.address], given)
        merged.update()
        assert ("a" in merged.parts) == is_read
        assert ('process="0"' in exposed(merged)) == is_read


def test_answer_of_another_kind_is_none() -> None:
    answers = iter([(b"error", 500), (b"error", 200), (b"[1]", 200), (b"\xff", 200), (b"", 200)])

    async def answer(_: Request) -> Response:
        return Response(*next(answers))

    app = Starlette(routes=[Route("/api/v1/status", answer)])
    with ControlServer(app, "127.0.0.1", 0) as server:
        health = merged_of(lambda: [server.address])
        for _ in range(5):
            health.update()
            assert health.to_json({})["pipelines"] == []
            reason = "1 of 1 not ready: process 0: it does not answer"
            assert health.overall.reason == reason


def test_metrics_have_the_label_process(processes: list[Process]) -> None:
    for number, process in enumerate(processes):
        process.metrics.count("infeed_sent_bytes", "new", amount=100 + number)
        process.metrics.measure("infeed_stage_seconds", 0.002, "new", "send")
    merged = merged_of(lambda: [process.server.address for process in processes])
    lines = exposed(merged).splitlines()
    assert lines.count("# TYPE infeed_sent_bytes_total counter") == 1
    for number in range(2):
        sent = f'infeed_sent_bytes_total{{pipeline="new",process="{number}"}} {100 + number}.0'
        assert sent in lines
        labels = f'pipeline="new",process="{number}",stage="send"'
        assert f"infeed_stage_seconds_count{{{labels}}} 1.0" in lines
    # No single process can know it.
    desired = [line for line in lines if line.startswith("infeed_desired_servers")]
    assert desired == ["infeed_desired_servers 0.0"]


def test_bad_samples_are_requested_by_the_quoted_name(start: Callable[..., Process]) -> None:
    sample = {"time": "1", "sample_id": 7, "count": 1}
    one, two = start("a/b?"), start("other")
    engine: Any = one.observer.facts.engines["a/b?"]
    engine.bad_samples = lambda: [sample]
    merged = merged_of(lambda: [one.server.address, two.server.address])
    assert merged.bad_samples("a/b?") == [sample]
    assert merged.bad_samples("none") is None
