"""Processes of `infeed dispatcher` and `infeed worker`."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.http_get import Answer, fetch, metric
from tests.harness.nursery import Nursery
from tests.harness.process import Process
from tests.harness.waiting import wait_until

# A trainer that always reads, so that the worker requests its next elements from the dispatcher.
READER = """
import sys, tensorflow as tf
service = tf.data.experimental.service
policy = service.ShardingPolicy.DYNAMIC
dataset = tf.data.Dataset.range(10**9).apply(service.distribute(policy, f"grpc://{sys.argv[1]}"))
for number, _ in enumerate(dataset):
    if number == 10:
        print("reads", flush=True)
"""
IMPATIENT = str(Path(__file__).with_name("impatient.py"))


class Role:
    """A process of a role."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @cached_property
    def addresses(self) -> tuple[str, str]:
        """The advertised address and the control plane's, once it serves."""
        line = self.process.read_line(200)
        match = re.fullmatch(r"serving on (\S+) \(http (\S+)\)", line)
        assert match, f"{line!r}\n{self.log}"
        return match[1], match[2]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def log(self) -> str:
        return self.process.stderr

    def get(self, path: str) -> Answer:
        return fetch(self.addresses[1], path)

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.addresses[1], name, **labels)


@pytest.fixture(scope="module")
def dispatcher(
    nursery: Nursery, new_address: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Role]:
    folder = tmp_path_factory.mktemp("dispatcher")
    options = ("--listen", new_address(), "--http", "127.0.0.1:0", "--work-dir", "journal")
    arguments = ("python", IMPATIENT, "dispatcher", *options)
    role = Role(nursery.start(arguments, folder / "log", folder))
    yield role
    role.process.kill()


@pytest.fixture(scope="module")
def worker(
    nursery: Nursery, dispatcher: Role, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Role]:
    folder = tmp_path_factory.mktemp("worker")
    options = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--tag", "mine")
    arguments = ("python", IMPATIENT, "worker", "--dispatcher", dispatcher.address, *options)
    role = Role(nursery.start(arguments, folder / "log", folder))
    yield role
    role.process.kill()


def test_control_planes_report_each_other(dispatcher: Role, worker: Role) -> None:
    name = "infeed_dispatcher_worker_reachable"
    wait_until(lambda: dispatcher.metric(name, worker=worker.address) == 1, "the worker is listed")
    assert dispatcher.metric("infeed_dispatcher_workers") == 1
    assert dispatcher.metric("infeed_dispatcher_lost_tasks_total") == 0
    ready = dispatcher.get("/readyz").json
    assert ready["ready"]
    assert ready["workers"][worker.address]["ready"]
    assert worker.metric("infeed_worker_wedged") == worker.metric("infeed_worker_tasks") == 0
    ready = worker.get("/readyz").json
    assert ready["dispatchers"] == {dispatcher.address: {"ready": True, "reason": "it answers"}}
    for role, name in ((dispatcher, "dispatcher"), (worker, "worker")):
        assert role.metric("infeed_build_info", role=name, tensorflow=tf.__version__) == 1


def test_worker_exits_on_sigterm_and_on_a_new_journal(
    command_line: Any, dispatcher: Role, worker: Role, tmp_path: Path
) -> None:
    script = IMPATIENT
    command = ("python", script, "worker", "--dispatcher", dispatcher.address)
    other = command_line.start(*command, "--listen", "127.0.0.1:0", "--http", "off", cwd=tmp_path)
    assert other.address
    assert other.stdout.split()[3:] == ["(http", "off)"]
    other.signal(signal.SIGTERM)
    assert other.wait() == 0, other.stderr
    assert "Traceback" not in other.stderr
    assert worker.address
    dispatcher.process.kill()
    restarted = command_line.start(
        *("python", script, "dispatcher", "--listen", dispatcher.address, "--http", "off"),
        *("--work-dir", str(tmp_path / "empty")),
        cwd=tmp_path,
    )
    assert restarted.address == dispatcher.address
    assert worker.process.wait() == 3, worker.log
    assert f"worker {worker.address} must be restarted: the dispatcher at " in worker.log
    assert "began a new journal" in worker.log
    restarted.signal(signal.SIGTERM)
    assert restarted.wait() == 0, restarted.stderr
    assert "Traceback" not in restarted.stderr


def test_worker_that_has_served_exits_0_after_its_dispatcher(
    command_line: Any, tmp_path: Path
) -> None:
    def start_role(role: str, *options: str) -> Any:
        command = (role, "--listen", "127.0.0.1:0", "--http", "off")
        return command_line.start(*command, *options, cwd=tmp_path)

    dispatcher = start_role("dispatcher")
    worker = start_role("worker", "--dispatcher", dispatcher.address)
    assert worker.address
    (tmp_path / "reader.py").write_text(READER)
    reader = command_line.start("python", "reader.py", dispatcher.address, cwd=tmp_path)
    assert reader.read_line() == "reads"
    dispatcher.kill()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.stderr
    reader.kill()
