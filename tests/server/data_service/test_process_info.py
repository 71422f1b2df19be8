"""Tests of published process information, and of the check of TensorFlow versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from infeed.rpc.tf_dispatcher import DISPATCHER_ROLE, DispatcherClient
from infeed.shared.errors import ConfigError, ServerUnavailableError
from infeed.v1 import cluster_pb2 as messages
from infeed_server.config.address import Address
from infeed_server.data_service import process_info
from infeed_server.data_service.dispatcher.role import DispatcherRole
from infeed_server.data_service.process_info import (
    ProcessInfo,
    VersionMonitor,
    check_versions,
    tensorflow_versions,
)
from infeed_server.data_service.worker.role import WorkerRole
from infeed_server.version import VERSION

Start = Callable[..., WorkerRole]


def test_all_roles_publish_their_version(dispatcher: DispatcherRole, worker: Start) -> None:
    address = worker().address
    assert tensorflow_versions(dispatcher.address) == {
        f"dispatcher {dispatcher.address}": tf.__version__,
        f"worker {address}": tf.__version__,
    }
    check_versions(dispatcher.address, tf.__version__)


def test_mismatched_worker_is_named(
    dispatcher: DispatcherRole,
    worker: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    same = worker()
    monkeypatch.setattr(tf, "__version__", "2.20.0")
    other = worker()
    monkeypatch.undo()
    monitor = VersionMonitor(dispatcher.address, tf.__version__)
    monitor.run_once()
    monitor.run_once()
    assert monitor.mismatches == {f"worker {other.address}": "2.20.0"}
    assert caplog.text.count(f"worker {other.address} runs TensorFlow 2.20.0, this process") == 1
    with pytest.raises(ConfigError) as raised:
        check_versions(dispatcher.address, tf.__version__)
    assert str(raised.value) == (
        f"worker {other.address} runs TensorFlow 2.20.0, this server {tf.__version__}; all "
        "processes of a service need the same version"
    )
    assert same.address not in str(raised.value)
    # A worker restarted at its address has its new version, which its tags would not show.
    other.stop()
    worker(Address.parse(other.address))
    check_versions(dispatcher.address, tf.__version__)
    monitor.run_once()
    assert monitor.mismatches == {}
    dispatcher.stop()
    monitor.run_once()
    assert "the TensorFlow versions of the workers are unknown" in caplog.text


def test_unknown_version_is_logged(
    dispatcher: DispatcherRole, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat = messages.WorkerHeartbeat(worker_address="10.9.9.9:1")
    client = DispatcherClient(dispatcher.address)
    client.call("WorkerHeartbeat", heartbeat, messages.WorkerHeartbeatAnswer)
    check_versions(dispatcher.address, tf.__version__)
    assert "worker 10.9.9.9:1: unknown TensorFlow version" in caplog.text


def test_unreachable_dispatcher_is_an_error(new_address: Callable[[], str]) -> None:
    with pytest.raises(ServerUnavailableError):
        tensorflow_versions(new_address())


def test_journal_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def info_of(folder: str) -> ProcessInfo:
        role = DispatcherRole(Address("127.0.0.1", 0), work_dir=tmp_path / folder)
        role.start()
        info = process_info.fetch(DispatcherClient(role.address), DISPATCHER_ROLE)
        role.stop()
        assert info is not None
        return info

    first = info_of("a")
    assert first.tensorflow == tf.__version__
    assert first.infeed == VERSION
    assert len(first.journal) == 32
    assert info_of("a") == first
    assert info_of("b").journal != first.journal
    monkeypatch.setattr(tf, "__version__", "2.22.0")
    assert info_of("a") == ProcessInfo("2.22.0", VERSION, first.journal, "dynamic")
    monkeypatch.undo()
    assert info_of("a") == first


def test_unpublished_role_has_no_info(dispatcher: DispatcherRole) -> None:
    assert process_info.fetch(DispatcherClient(dispatcher.address), "worker-x") is None
