"""Fixtures: servers shared by a module's tests, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.harness.clock import ManualClock
from tests.harness.waiting import wait_until

from infeed_server.engines.base import Request
from infeed_server.engines.sequential import engine as engine_module
from infeed_server.engines.sequential import shared_reader as reader_module
from infeed_server.engines.sequential.ranks import RankStream, RankTracker
from infeed_server.engines.sequential.shared_reader import SharedReader
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers as `serve` does; they run until the module's last test."""
    running: list[Server] = []

    def start(pipelines: Any) -> Server:
        server = Server(pipelines, ServerOptions("127.0.0.1:0", None))
        running.append(server)
        server.start()
        return server

    with pytest.MonkeyPatch.context() as patch:
        # The default directory of the quarantine log.
        patch.chdir(tmp_path_factory.mktemp("shared"))
        yield start
    for server in running:
        server.stop(grace=0.2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of rank trackers; readers check at short intervals."""
    clock = ManualClock(1000.0)
    ranks = partial(RankTracker, clock=clock)
    monkeypatch.setattr(engine_module, "RankTracker", ranks)
    monkeypatch.setattr(reader_module, "RankTracker", ranks)
    monkeypatch.setattr(reader_module, "_CHECK_INTERVAL_SECONDS", 0.01)
    return clock


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> set[Request]:
    """The requests that have waited for other ranks."""
    waits: set[Request] = set()
    must_wait = SharedReader._must_wait

    def record(reader: SharedReader, stream: RankStream) -> bool:
        if is_waiting := must_wait(reader, stream):
            waits.update(stream.request for stream in reader._streams if stream.request)
        return is_waiting

    monkeypatch.setattr(SharedReader, "_must_wait", record)
    return waits


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`wait_until`: `eventually(condition, what)`."""
    return wait_until
