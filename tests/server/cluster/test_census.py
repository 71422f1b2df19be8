"""What roles leave about themselves, and which of them differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from tests.server.cluster.conftest import free_port

from infeed.errors import ConfigError, ServerUnavailableError
from infeed.inquiry import Dispatcher
from infeed.v1 import cluster_pb2 as messages
from infeed_server.cluster import marker
from infeed_server.cluster.census import VersionWatch, check_versions, versions
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.marker import Marker
from infeed_server.cluster.worker import WorkerRole
from infeed_server.config.address import Address
from infeed_server.version import VERSION

Start = Callable[..., WorkerRole]


def test_all_roles_tell_their_version(dispatcher: DispatcherRole, worker: Start) -> None:
    address = worker().address
    assert versions(dispatcher.address) == {
        f"dispatcher {dispatcher.address}": tf.__version__,
        f"worker {address}": tf.__version__,
    }
    check_versions(dispatcher.address, tf.__version__)


def test_those_that_differ_are_named(
    dispatcher: DispatcherRole,
    worker: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    same = worker()
    monkeypatch.setattr(tf, "__version__", "2.20.0")
    other = worker()
    monkeypatch.undo()
    watch = VersionWatch(dispatcher.address, tf.__version__)
    watch.look()
    watch.look()
    assert watch.others == {f"worker {other.address}": "2.20.0"}
    assert caplog.text.count(f"worker {other.address} runs TensorFlow 2.20.0, this one") == 1
    with pytest.raises(ConfigError) as told:
        check_versions(dispatcher.address, tf.__version__)
    assert str(told.value) == (
        f"worker {other.address} runs TensorFlow 2.20.0, this server {tf.__version__}; all "
        "processes of a service need the same"
    )
    assert same.address not in str(told.value)
    # Started anew under its address, it is what it is now, which its tags would not tell.
    other.stop()
    worker(Address.parse(other.address))
    check_versions(dispatcher.address, tf.__version__)
    watch.look()
    assert watch.others == {}
    dispatcher.stop()
    watch.look()
    assert "cannot be asked for" in caplog.text


def test_who_does_not_tell_is_logged(
    dispatcher: DispatcherRole, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = messages.WorkerHeartbeat(worker_address="10.9.9.9:1")
    asked = Dispatcher(dispatcher.address)
    asked.ask("WorkerHeartbeat", stranger, messages.WorkerHeartbeatAnswer)
    check_versions(dispatcher.address, tf.__version__)
    assert "worker 10.9.9.9:1 does not tell its TensorFlow" in caplog.text


def test_nobody_there() -> None:
    with pytest.raises(ServerUnavailableError):
        versions(f"127.0.0.1:{free_port()}")


def test_a_journal_has_a_name_for_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def journal(folder: str) -> Marker:
        role = DispatcherRole(Address("127.0.0.1", 0), work_dir=tmp_path / folder)
        role.start()
        found = marker.read(Dispatcher(role.address), marker.DISPATCHER)
        role.stop()
        assert found is not None
        return found

    first = journal("a")
    assert first.tensorflow == tf.__version__
    assert first.infeed == VERSION
    assert len(first.journal) == 32
    assert journal("a") == first
    assert journal("b").journal != first.journal
    monkeypatch.setattr(tf, "__version__", "2.22.0")
    assert journal("a") == Marker("2.22.0", VERSION, first.journal)
    monkeypatch.undo()
    assert journal("a") == first


def test_nothing_was_left(dispatcher: DispatcherRole) -> None:
    assert marker.read(Dispatcher(dispatcher.address), "worker-x") is None
