"""Servers that a module's tests share, and a clock that tests set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.waiting import wait_until

from infeed_server.engines import reader as reader_module
from infeed_server.engines import sequential as sequential_module
from infeed_server.engines import teller as teller_module
from infeed_server.engines.ranks import Ranks
from infeed_server.engines.teller import Teller
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """As `serve`, but its servers live until the module's last test."""
    running: list[Server] = []

    def start(pipelines: Any) -> Server:
        server = Server(pipelines, ServerOptions("127.0.0.1:0", None))
        running.append(server)
        server.start()
        return server

    with pytest.MonkeyPatch.context() as patch:
        # Where the quarantine log goes by default.
        patch.chdir(tmp_path_factory.mktemp("shared"))
        yield start
    for server in running:
        server.stop(grace=0.2)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the ranks at a reading and of what the log is told; readers look often."""
    clock = Clock()
    ranks = partial(Ranks, clock=clock)
    monkeypatch.setattr(sequential_module, "Ranks", ranks)
    monkeypatch.setattr(reader_module, "Ranks", ranks)
    monkeypatch.setattr(teller_module, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(reader_module, "_LOOK_SECONDS", 0.01)
    return clock


class Waits:
    """Which requests wait for other ranks."""

    def __init__(self) -> None:
        self._found: set[tuple[int, int]] = set()
        self._changed = threading.Condition()

    def add(self, rank: int, target: int) -> None:
        with self._changed:
            self._found.add((rank, target))
            self._changed.notify_all()

    def has(self, rank: int, target: int) -> bool:
        """Whether the rank's request that ends at this position has waited."""
        with self._changed:
            return (rank, target) in self._found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """What readers have held back so far."""
    found = Waits()

    class Told(Teller):
        def waits(self, ranks: Ranks, why: str) -> None:
            found.add(self._rank, self._target)
            super().waits(ranks, why)

    monkeypatch.setattr(reader_module, "Teller", Told)
    return found


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds, `eventually(condition, what)`; `what` may be a function."""
    return wait_until
