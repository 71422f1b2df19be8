"""A dispatcher and a worker: what they refuse, and what they are for TensorFlow."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tests.server.cluster.conftest import LOCAL, free_port, other_host

from infeed.errors import ConfigError, ServerUnavailableError
from infeed.inquiry import Dispatcher, worker_tasks
from infeed_server.cluster import dispatcher as roles
from infeed_server.cluster import processes
from infeed_server.cluster import worker as module
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.worker import WorkerRole
from infeed_server.config.address import Address

Start = Callable[..., WorkerRole]


def test_they_make_batches(dispatcher: DispatcherRole, worker: Start) -> None:
    addresses = [worker().address, worker().address]
    assert Dispatcher(dispatcher.address).workers() == sorted(addresses)
    service = tf.data.experimental.service.distribute(
        tf.data.experimental.service.ShardingPolicy.DYNAMIC, f"grpc://{dispatcher.address}"
    )
    found = tf.data.Dataset.range(50).apply(service).as_numpy_iterator()
    assert sorted(int(each) for each in found) == list(range(50))


def test_a_journal_of_its_own_ends_with_it(caplog: pytest.LogCaptureFixture) -> None:
    role = DispatcherRole(LOCAL)
    role.start()
    assert "journal is temporary" in caplog.text
    folder = Path(role._temporary.name)
    assert folder.is_dir()
    role.stop()
    assert not folder.exists()
    role.stop()


def test_a_journal_outlives_its_dispatcher(tmp_path: Path) -> None:
    listen = Address("127.0.0.1", free_port())
    first = DispatcherRole(listen, work_dir=tmp_path)
    first.start()
    tf.data.experimental.service.register_dataset(
        f"grpc://{first.address}", tf.data.Dataset.range(3), dataset_id="kept"
    )
    first.stop()
    second = DispatcherRole(listen, work_dir=tmp_path)
    second.start()
    kept = tf.data.experimental.service.from_dataset_id(
        "parallel_epochs", f"grpc://{second.address}", "kept"
    )
    assert kept.element_spec == tf.TensorSpec([], tf.int64)
    second.stop()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--work-dir .*/file/x: cannot write there: not a dir"):
        DispatcherRole(LOCAL, work_dir=tmp_path / "file" / "x")


def test_a_port_that_is_taken(dispatcher: DispatcherRole) -> None:
    taken = Address("127.0.0.1", dispatcher.port)
    with pytest.raises(ConfigError, match="address already in use"):
        DispatcherRole(taken)
    with pytest.raises(ConfigError, match="address already in use"):
        WorkerRole(dispatcher.address, taken)


def test_an_advertised_address_has_its_own_port_or_that_which_is_listened_on() -> None:
    assert DispatcherRole(LOCAL, advertise="d.example:9").address == "d.example:9"
    role = DispatcherRole(LOCAL, advertise="localhost")
    role.start()
    assert role.address == f"localhost:{role.port}"
    assert role.local_address == f"127.0.0.1:{role.port}"
    role.stop()


def test_a_worker_without_a_dispatcher(caplog: pytest.LogCaptureFixture) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    role = WorkerRole(nobody, LOCAL, patience=0.1)
    caplog.set_level("INFO")
    with pytest.raises(ServerUnavailableError) as told:
        role.start(sleep=lambda _: None)
    for part in (f"answers at {nobody}", "tried for 0.1 s", "`infeed dispatcher` runs there"):
        assert part in str(told.value)
    assert caplog.text.count("waiting for the dispatcher") == 1


def test_a_worker_waits_for_its_dispatcher(tmp_path: Path) -> None:
    listen = Address("127.0.0.1", free_port())
    late = DispatcherRole(listen, work_dir=tmp_path)
    role = WorkerRole(str(listen), LOCAL, grace=0)
    pauses = []

    def sleep(seconds: float) -> None:
        if not pauses:
            late.start()
        pauses.append(seconds)

    role.start(sleep)
    assert pauses
    role.stop()
    late.stop()


@pytest.mark.parametrize("text", ["nonsense", "unix:/run/x", "127.0.0.1:0"])
def test_what_is_no_address_of_a_dispatcher(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        WorkerRole(text, LOCAL)


def test_a_worker_that_others_cannot_reach(
    dispatcher: DispatcherRole, worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.1)
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(ServerUnavailableError) as told:
        worker(advertise=nowhere)
    for part in (nowhere, dispatcher.address, "Connection refused", "--advertise HOST:PORT"):
        assert part in str(told.value)
    # Or the dispatcher would give it work for as long as its journal lives.
    assert Dispatcher(dispatcher.address).workers() == []


def test_a_worker_that_is_not_found_after_all(
    dispatcher: DispatcherRole, worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(module, "elsewhere", lambda *_: None)
    nowhere = f"127.0.0.1:{free_port()}"
    role = WorkerRole(dispatcher.address, LOCAL, nowhere, grace=0)
    with pytest.raises(ServerUnavailableError, match="no worker of TensorFlow's data service"):
        role.start()
    with pytest.raises(ServerUnavailableError):
        worker_tasks(role.local_address)  # it has ended


def test_a_worker_that_its_dispatcher_does_not_list(
    dispatcher: DispatcherRole, worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(module.Dispatcher, "workers", lambda asked: [])
    with pytest.raises(ServerUnavailableError, match="the dispatcher does not list it"):
        worker()


def test_a_port_that_is_taken_before_the_start(dispatcher: DispatcherRole) -> None:
    port = free_port()
    roles = [
        DispatcherRole(Address("127.0.0.1", port)),
        WorkerRole(dispatcher.address, Address("127.0.0.1", port)),
    ]
    with closing(socket.create_server(("127.0.0.1", port))):
        for role in roles:
            with pytest.raises(ConfigError, match="address already in use"):
                role.start()


def test_a_port_that_is_taken_while_a_worker_starts(
    dispatcher: DispatcherRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    role = WorkerRole(dispatcher.address, Address("127.0.0.1", port))
    with ExitStack() as stack:

        def take(*_: object) -> None:
            stack.enter_context(closing(socket.create_server(("127.0.0.1", port))))

        monkeypatch.setattr(module, "elsewhere", take)
        with pytest.raises(ConfigError, match=r"cannot listen on .*: address already in use"):
            role.start()


def test_a_dispatcher_that_cannot_be_marked_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ServerUnavailableError("no")

    monkeypatch.setattr(roles.marker, "leave", refuse)
    role = DispatcherRole(LOCAL)
    with pytest.raises(ServerUnavailableError, match="no"):
        role.start()
    assert role._temporary is None
    with pytest.raises(ServerUnavailableError):
        Dispatcher(role.local_address).version()


def test_a_worker_is_tagged_with_its_tensorflow_its_control_plane_and_the_users_tags(
    worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags: list[str] = []

    def start(config: Any, listen: Address) -> None:
        tags.extend(config.worker_tags)
        raise ConfigError("that is enough")

    monkeypatch.setattr(processes, "worker_server", start)
    with pytest.raises(ConfigError, match="that is enough"):
        worker(tags=("mine",), http=Address("127.0.0.1", 9))
    assert tags == ["infeed", f"tensorflow={tf.__version__}", "http=127.0.0.1:9", "mine"]


def test_a_free_port_is_warned_of(worker: Start, caplog: pytest.LogCaptureFixture) -> None:
    worker(Address("127.0.0.1", free_port()))
    assert "took a free port" not in caplog.text
    worker(keeps_port=True)
    assert "took a free port" not in caplog.text
    role = worker()
    assert "took a free port" in caplog.text
    assert worker_tasks(role.local_address) == []


def test_arguments_are_checked_without_tensorflow() -> None:
    code = (
        "import sys\n"
        "from infeed_server.cluster.dispatcher import DispatcherRole\n"
        "from infeed_server.cluster.worker import WorkerRole\n"
        "from infeed_server.config.address import Address\n"
        "DispatcherRole(Address('127.0.0.1', 0))\n"
        "WorkerRole('127.0.0.1:1', Address('127.0.0.1', 0))\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_what_nobody_reads_any_more_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOB_CHECK_SECONDS", "JOB_SECONDS", "CLIENT_SECONDS"):
        monkeypatch.setattr(roles, name, 0.5)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.2)
    dispatcher = DispatcherRole(LOCAL)
    dispatcher.start()
    worker = WorkerRole(dispatcher.address, LOCAL, grace=0)
    worker.start()
    service = tf.data.experimental.service.distribute(
        tf.data.experimental.service.ShardingPolicy.DYNAMIC, f"grpc://{dispatcher.address}"
    )
    reading = iter(tf.data.Dataset.range(10**9).apply(service))
    next(reading)
    assert worker.tasks == 1
    del reading
    deadline = time.monotonic() + 200
    while worker.tasks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker.stop()
    dispatcher.stop()


def test_for_other_machines() -> None:
    everywhere = Address("0.0.0.0", 0)
    host = other_host()
    dispatcher = DispatcherRole(everywhere, insecure=True)
    dispatcher.start()
    assert dispatcher.address == f"{host}:{dispatcher.port}"
    worker = WorkerRole(dispatcher.address, everywhere, grace=0, insecure=True)
    worker.start()
    assert worker.address == f"{host}:{worker.port}"
    assert Dispatcher(dispatcher.address).workers() == [worker.address]
    worker.stop()
    dispatcher.stop()
