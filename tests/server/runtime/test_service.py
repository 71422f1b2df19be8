"""TensorFlow's data service as part of a server: joined, or the server's own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from infeed.errors import ConfigError
from infeed_server.cluster import service as module
from infeed_server.cluster.service import Service
from infeed_server.config.address import Address
from infeed_server.runtime import service as runtime
from infeed_server.runtime.options import ServerOptions, ServiceOptions
from infeed_server.runtime.places import Places, places
from infeed_server.runtime.service import JoinedService, OwnService, service_of


def test_a_joined_service_is_looked_at_for_as_long_as_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it said when it was joined is soon too old to go by."""
    looks = iter(range(1000))
    third = threading.Event()

    def look(service: Service) -> None:
        if next(looks) == 2:
            third.set()

    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Service, "_look", look)
    joined = JoinedService("127.0.0.1:1", ServiceOptions())
    joined.start()
    try:
        assert third.wait(100), "it is looked at while it is joined only"
    finally:
        joined.stop()


@pytest.mark.parametrize("address", ["nowhere:0", "nowhere", "unix:/run/x"])
def test_an_address_of_no_dispatcher_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        JoinedService(address, ServiceOptions())


def test_an_own_dispatcher_on_an_open_address_needs_the_word() -> None:
    options = ServiceOptions(listen="0.0.0.0:0")
    with pytest.raises(ConfigError, match=r"--dispatcher-listen 0\.0\.0\.0:0: .*--insecure"):
        OwnService(options, insecure=False)
    OwnService(options, insecure=True)


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each dispatcher that is made."""
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(runtime, "DispatcherRole", lambda *args, insecure: made.append(args))
    return made


def test_an_own_dispatcher_knows_its_workers_beforehand(roles: list[tuple[Any, ...]]) -> None:
    OwnService(ServiceOptions(workers=2), insecure=False)
    OwnService(ServiceOptions(workers=2, listen="0.0.0.0:0"), insecure=True)
    listen, _, work_dir, fixed = roles[0]
    assert (listen, work_dir) == (Address("127.0.0.1", 0), None)
    assert fixed == ("127.0.0.1:%port%",) * 2
    assert roles[1][3] == (), "how others reach them is not known"


def test_with_a_journal_all_listen_where_they_did_once_that_is_free(
    roles: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited: list[Places] = []

    def await_free(found: Places) -> None:
        awaited.append(found)

    monkeypatch.setattr(Places, "await_free", await_free)
    OwnService(ServiceOptions(workers=2, work_dir=str(tmp_path)), insecure=False)
    kept = places(tmp_path, Address("127.0.0.1", 0), 2)
    assert awaited == [kept]
    assert roles == [(Address.parse(kept.dispatcher), None, tmp_path, kept.workers)]


def test_options_choose_the_service() -> None:
    assert service_of(ServerOptions()) is None
    joined = service_of(ServerOptions(service=ServiceOptions("127.0.0.1:1")))
    assert isinstance(joined, JoinedService)
    assert isinstance(service_of(ServerOptions(service=ServiceOptions())), OwnService)


def test_workers_are_counted_by_whether_they_answer() -> None:
    joined = JoinedService("127.0.0.1:1", ServiceOptions())
    joined.service.answering_workers, joined.service.lost_workers = 2, ("127.0.0.1:2",)
    assert joined.workers() == {("answering",): 2, ("lost",): 1}
    assert joined.served() == {}
