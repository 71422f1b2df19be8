"""Fixtures: infeed's dispatcher and workers in this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infeed_server.config.address import Address
from infeed_service.options import DispatcherOptions, WorkerOptions
from infeed_service.roles.dispatcher import DispatcherRole
from infeed_service.roles.worker import WorkerRole

LOCAL = Address("127.0.0.1", 0)


def new_dispatcher(listen: Address = LOCAL, **options: Any) -> DispatcherRole:
    """Returns a dispatcher that is not started."""
    return DispatcherRole(DispatcherOptions(listen=str(listen), **options))


def new_worker(dispatcher: str, listen: Address = LOCAL, **options: Any) -> WorkerRole:
    """Returns a worker that is not started."""
    return WorkerRole(
        WorkerOptions(**{"dispatcher": dispatcher, "listen": str(listen), "grace": 0.0} | options)
    )


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[DispatcherRole]:
    role = new_dispatcher(work_dir=str(tmp_path / "journal"))
    role.start()
    yield role
    role.stop()


@pytest.fixture
def worker(dispatcher: DispatcherRole) -> Iterator[Callable[..., WorkerRole]]:
    """Starts workers of the dispatcher."""
    running: list[WorkerRole] = []

    def start(listen: Address = LOCAL, **options: object) -> WorkerRole:
        role = new_worker(dispatcher.address, listen, **options)
        running.append(role)
        role.start()
        return role

    yield start
    for role in running:
        role.stop()


@pytest.fixture
def new_listen(new_address: Callable[[], str]) -> Callable[[], Address]:
    """Returns an address as `new_address` does, for a role."""
    return lambda: Address.parse(new_address())


def non_loopback_host() -> str:
    """Returns an address of this machine that is not a loopback address. Sends nothing."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.88.99.1", 9))
        except OSError:
            pytest.skip("this machine has no other address")
        return probe.getsockname()[0]
