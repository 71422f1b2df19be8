"""Tests of the lifecycle of an external and an embedded data service."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.data_service.gateway import client as client_module
from infeed_server.data_service.gateway import lifecycle as module
from infeed_server.data_service.gateway.client import DataServiceClient
from infeed_server.data_service.gateway.lifecycle import EmbeddedDataService, ExternalDataService
from infeed_server.data_service.gateway.saved_addresses import SavedAddresses, load_saved_addresses
from infeed_server.data_service.options import ServiceOptions
from infeed_server.runtime.engine_factory import create_data_service
from infeed_server.runtime.options import ServerOptions


def test_external_service_is_checked_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = iter(range(1000))
    third = threading.Event()

    def find_problem(client: DataServiceClient) -> None:
        if next(checks) == 2:
            third.set()

    monkeypatch.setattr(client_module, "CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(DataServiceClient, "_find_problem", find_problem)
    service = ExternalDataService("127.0.0.1:1", ServiceOptions())
    service.start()
    try:
        assert third.wait(100), "only the start checks it"
    finally:
        service.stop()


@pytest.mark.parametrize("address", ["nowhere:0", "nowhere", "unix:/run/x"])
def test_invalid_dispatcher_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        ExternalDataService(address, ServiceOptions())


def test_embedded_dispatcher_on_open_address_needs_insecure() -> None:
    options = ServiceOptions(listen="0.0.0.0:0")
    with pytest.raises(ConfigError, match=r"--dispatcher-listen 0\.0\.0\.0:0: .*--insecure"):
        EmbeddedDataService(options, insecure=False)
    EmbeddedDataService(options, insecure=True)


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each dispatcher role."""
    roles: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "DispatcherRole", lambda *args, insecure: roles.append(args))
    return roles


def test_embedded_dispatcher_has_worker_addresses(roles: list[tuple[Any, ...]]) -> None:
    EmbeddedDataService(ServiceOptions(workers=2), insecure=False)
    EmbeddedDataService(ServiceOptions(workers=2, listen="0.0.0.0:0"), insecure=True)
    listen, _, work_dir, worker_addresses = roles[0]
    assert (listen, work_dir) == (Address("127.0.0.1", 0), None)
    assert worker_addresses == ("127.0.0.1:%port%",) * 2
    assert roles[1][3] == (), "the advertised addresses are unknown"


def test_with_a_journal_saved_addresses_are_reused(
    roles: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[SavedAddresses] = []

    def wait_until_free(addresses: SavedAddresses) -> None:
        waits.append(addresses)

    monkeypatch.setattr(SavedAddresses, "wait_until_free", wait_until_free)
    EmbeddedDataService(ServiceOptions(workers=2, work_dir=str(tmp_path)), insecure=False)
    saved = load_saved_addresses(tmp_path, Address("127.0.0.1", 0), 2)
    assert waits == [saved]
    assert roles == [(Address.parse(saved.dispatcher), None, tmp_path, saved.workers)]


def test_options_select_the_service() -> None:
    assert create_data_service(ServerOptions()) is None
    external = create_data_service(ServerOptions(service=ServiceOptions("127.0.0.1:1")))
    assert isinstance(external, ExternalDataService)
    assert isinstance(
        create_data_service(ServerOptions(service=ServiceOptions())), EmbeddedDataService
    )


def test_workers_are_counted_by_state() -> None:
    service = ExternalDataService("127.0.0.1:1", ServiceOptions())
    service.client.answering_workers, service.client._lost_since = 2, {"127.0.0.1:2": 0.0}
    assert service.workers() == {("answering",): 2, ("lost",): 1}
    assert service.served() == service.work_dir() == {}
