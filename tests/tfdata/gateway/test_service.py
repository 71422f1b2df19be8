"""Tests of a server's data service: of another dispatcher, or its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_tfdata.gateway import service as module
from infeed_tfdata.gateway.service import EmbeddedDataService, ExternalDataService
from infeed_tfdata.options import DispatcherOptions, ServiceOptions
from infeed_tfdata.rpc import Silence


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
    roles: list[DispatcherOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(module, "_wait_until_free", waits.append)
    options = {"workers": 2, "work_dir": str(tmp_path)}
    EmbeddedDataService(ServiceOptions(**options), insecure=False)
    workers = ["127.0.0.1:7473", "127.0.0.1:7474"]
    assert (roles[0].listen, roles[0].work_dir) == ("127.0.0.1:7472", str(tmp_path))
    assert roles[0].worker_address == workers
    assert [str(address) for address in waits[0]] == ["127.0.0.1:7472", *workers]
    with pytest.raises(ConfigError, match="give a port, and leave the next 2 to the workers"):
        EmbeddedDataService(
            ServiceOptions(**options, dispatcher_listen="127.0.0.1:0"), insecure=False
        )


def test_workers_are_counted_by_state() -> None:
    service = ExternalDataService("127.0.0.1:1", ServiceOptions())
    service.client._workers.tasks = {"127.0.0.1:1": 0}
    service.client._workers.silent = dict.fromkeys(["127.0.0.1:2", "127.0.0.1:3"], Silence(0, ""))
    assert service.workers() == {("answering",): 1, ("lost",): 2}
    assert service.free_bytes() == {}
