"""Local worker processes: they end with their parent, or at once with an error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from tests.harness.nursery import Nursery

from infeed.shared.errors import ServerError
from infeed_server.config.address import Address
from infeed_service.gateway.service import local_workers
from infeed_service.options import DispatcherOptions
from infeed_service.roles.dispatcher import DispatcherRole

LOCAL = Address("127.0.0.1", 0)


@pytest.fixture
def dispatcher() -> Iterator[str]:
    role = DispatcherRole(DispatcherOptions(listen="127.0.0.1:0"))
    role.start()
    yield role.address
    role.stop()


@pytest.fixture
def forked_workers(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts workers in interpreters that have loaded TensorFlow."""
    monkeypatch.setattr(sys, "executable", str(nursery.python))


@pytest.mark.usefixtures("forked_workers")
def test_worker_that_exits_at_start_is_an_error() -> None:
    workers = local_workers("not an address", [LOCAL])
    with pytest.raises(ServerError, match="the first process ended with status 1"):
        workers.start(threading.Event().wait)
    workers.stop(100)


@pytest.mark.usefixtures("forked_workers")
def test_worker_exits_with_its_parent(dispatcher: str) -> None:
    workers = local_workers(dispatcher, [LOCAL])
    workers.start(threading.Event().wait)
    [worker] = workers.processes
    worker._process.stdin.close()  # as the kernel does at the end of the parent
    # 1 comes from the exit timeout, on a machine that is too slow for a graceful shutdown.
    assert worker._process.wait(100) in (0, 1)
    workers.stop(1)
