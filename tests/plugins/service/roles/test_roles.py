"""Tests of the dispatcher role and the worker role."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.plugins.service.conftest import new_dispatcher, new_worker, non_loopback_host

from infeed.shared.errors import ConfigError, ServerUnavailableError
from infeed_server.config.address import Address
from infeed_server.serving.health import Readiness
from infeed_service.roles import worker as worker_module
from infeed_service.roles.dispatcher import DispatcherRole
from infeed_service.roles.worker import DispatcherMonitor
from infeed_service.rpc import STATIC_SHARDING, DispatcherClient, get_worker_tasks


def test_temporary_journal_is_deleted_at_stop(caplog: pytest.LogCaptureFixture) -> None:
    role = new_dispatcher()
    role.start()
    assert "journal is temporary" in caplog.text
    folder = Path(role._temporary.name)
    assert folder.is_dir()
    role.stop()
    assert not folder.exists()
    role.stop()


def test_work_dir_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--work-dir .*/file/x: cannot write there: Not a dir"):
        new_dispatcher(work_dir=str(tmp_path / "file" / "x"))


def test_advertised_port_defaults_to_the_listening_port() -> None:
    assert new_dispatcher(advertise="d.example:9").address == "d.example:9"
    role = new_dispatcher(advertise="localhost")
    role.start()
    assert role.address == f"localhost:{role.port}"
    assert role.local_address == f"127.0.0.1:{role.port}"
    role.stop()


def test_worker_without_dispatcher_fails_after_a_timeout(
    new_address: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unused = new_address()
    monkeypatch.setattr(worker_module, "DISPATCHER_START_TIMEOUT_SECONDS", 0.1)
    role = new_worker(unused)
    caplog.set_level("INFO")
    with pytest.raises(ServerUnavailableError) as raised:
        role.start()
    for part in (f"answers at {unused}", "tried for 0.1 s", "`infeed dispatcher` runs there"):
        assert part in str(raised.value)
    assert caplog.text.count("waiting: no dispatcher") == 1


def test_worker_at_unreachable_address_is_not_registered(
    dispatcher: DispatcherRole,
    new_address: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "REGISTRATION_TIMEOUT_SECONDS", 0.1)
    unreachable = new_address()
    role = new_worker(dispatcher.address, advertise=unreachable)
    with pytest.raises(ServerUnavailableError) as raised:
        role.start()
    for part in (unreachable, dispatcher.address, "Connection refused", "--advertise HOST:PORT"):
        assert part in str(raised.value)
    # The dispatcher would assign tasks to it for as long as its journal lives.
    assert DispatcherClient(dispatcher.address).get_workers() == []
    with pytest.raises(ServerUnavailableError):
        get_worker_tasks(role.local_address)  # it has stopped


def test_dispatcher_with_a_list_of_workers_has_the_mark(new_address: Callable[[], str]) -> None:
    for addresses in ([], [new_address()]):
        role = new_dispatcher(worker_address=addresses)
        role.start()
        assert DispatcherClient(role.address).has_dataset(STATIC_SHARDING) is bool(addresses)
        role.stop()


def test_dispatcher_without_its_journal_requires_a_restart(
    dispatcher: DispatcherRole, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = DispatcherMonitor(dispatcher.address)
    monitor.run_once()
    assert monitor.readiness() == {dispatcher.address: Readiness(True, "it answers")}
    monitor._mark._id = "of another journal"
    monitor.run_once()
    assert "began a new journal" in str(monitor.restart_reason)
    dispatcher.stop()
    for _ in range(2):
        monitor.run_once()
    assert not monitor.readiness()[dispatcher.address].ready
    assert caplog.text.count("the dispatcher does not answer") == 1


def test_wildcard_address_advertises_the_host_address() -> None:
    wildcard = Address("0.0.0.0", 0)
    host = non_loopback_host()
    dispatcher = new_dispatcher(wildcard, insecure=True)
    dispatcher.start()
    assert dispatcher.address == f"{host}:{dispatcher.port}"
    worker = new_worker(dispatcher.address, wildcard, insecure=True)
    worker.start()
    assert worker.address == f"{host}:{worker.port}"
    assert DispatcherClient(dispatcher.address).get_workers() == [worker.address]
    worker.stop()
    dispatcher.stop()
