"""Tests of a server's data service: of another dispatcher, or its own with local workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_service.gateway import service as module
from infeed_service.gateway.service import (
    EmbeddedDataService,
    ExternalDataService,
    kill_hung,
)
from infeed_service.options import DispatcherOptions, ServiceOptions


@pytest.mark.parametrize("address", ["nowhere:0", "nowhere", "unix:/run/x"])
def test_invalid_dispatcher_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        ExternalDataService(address, ServiceOptions())


def test_embedded_dispatcher_on_open_address_needs_insecure() -> None:
    options = ServiceOptions(dispatcher_listen="0.0.0.0:0")
    with pytest.raises(ConfigError, match=r"--dispatcher-listen 0\.0\.0\.0:0: .*--insecure"):
        EmbeddedDataService(options, insecure=False)
    EmbeddedDataService(options, insecure=True)


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> list[DispatcherOptions]:
    """The options of each dispatcher role."""
    roles: list[DispatcherOptions] = []
    monkeypatch.setattr(module, "DispatcherRole", lambda options, _: roles.append(options))
    return roles


def test_embedded_dispatcher_has_worker_addresses(roles: list[DispatcherOptions]) -> None:
    EmbeddedDataService(ServiceOptions(workers=2), insecure=False)
    EmbeddedDataService(ServiceOptions(workers=2, dispatcher_listen="0.0.0.0:0"), insecure=True)
    assert roles[0].worker_address == ["127.0.0.1:%port%"] * 2
    assert roles[1].worker_address == [], "the advertised addresses are unknown"


def test_workers_with_a_journal_have_the_next_ports(
    roles: list[DispatcherOptions], tmp_path: Path
) -> None:
    options = {"workers": 2, "work_dir": str(tmp_path)}
    EmbeddedDataService(ServiceOptions(**options), insecure=False)
    assert (roles[0].listen, roles[0].work_dir) == ("127.0.0.1:7472", str(tmp_path))
    assert roles[0].worker_address == ["127.0.0.1:7473", "127.0.0.1:7474"]
    free = ServiceOptions(**options, dispatcher_listen="127.0.0.1:0")
    with pytest.raises(ConfigError, match="give a port, and keep the next 2 free for") as caught:
        EmbeddedDataService(free, insecure=False)
    assert caught.value.metadata == {"address": "127.0.0.1:0"}


def test_only_lost_workers_that_serve_are_killed() -> None:
    def worker(port: int, http: str | None = "127.0.0.1:9") -> SimpleNamespace:
        return SimpleNamespace(address=f"127.0.0.1:{port}", http=http)

    killed: list[Any] = []
    group: Any = SimpleNamespace(
        processes=[worker(1), worker(2), worker(3, http=None)],
        kill_hung=lambda numbers, _: killed.extend(numbers),
    )
    kill_hung(group, ["127.0.0.1:2", "127.0.0.1:3"])
    assert killed == [1]
