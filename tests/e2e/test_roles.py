"""Processes of `infeed dispatcher` and `infeed worker`."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.nursery import Nursery
from tests.harness.process import Process
from tests.harness.spawned import SpawnedProcess
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
IMPATIENT = (sys.executable, str(Path(__file__).with_name("impatient.py")))


class Role:
    """A process of a role."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._addresses: tuple[str, str] | None = None

    @property
    def addresses(self) -> tuple[str, str]:
        """The advertised address and the control plane's, once it serves."""
        if self._addresses is None:
            line = self.process.read_line(200)
            match = re.fullmatch(r"serving on (\S+) \(http (\S+)\)", line)
            assert match, f"{line!r}\n{self.log}"
            self._addresses = match[1], match[2]
        return self._addresses

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def log(self) -> str:
        return self.process.stderr

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.addresses[1]}{path}", timeout=60) as response:
            return response.read().decode()

    def metric(self, name: str) -> float:
        """Returns the value of a sample, by name and labels."""
        return float(
            re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)[1]
        )

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int:
        return self.process.wait()


Start = Callable[..., Role]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts new interpreters, which load TensorFlow themselves."""
    folder = tmp_path_factory.mktemp("roles")
    running: list[Role] = []
    level = {"TF_CPP_MIN_LOG_LEVEL": os.environ["TF_CPP_MIN_LOG_LEVEL"]}

    def spawn(*command: str) -> Role:
        log = folder / str(len(running))
        running.append(Role(SpawnedProcess(command, log, environment=level, reads_stdin=True)))
        return running[-1]

    yield spawn
    for role in running:
        role.kill()


@pytest.fixture(scope="module")
def dispatcher(
    nursery: Nursery, new_address: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Role]:
    folder = tmp_path_factory.mktemp("dispatcher")
    options = ("--listen", new_address(), "--http", "127.0.0.1:0", "--work-dir", "journal")
    arguments = ("python", IMPATIENT[1], "dispatcher", *options)
    role = Role(nursery.start(arguments, folder / "log", folder))
    yield role
    role.kill()


@pytest.fixture(scope="module")
def worker(start: Start, dispatcher: Role) -> Role:
    """A worker in a new interpreter, since it sets TensorFlow's log level before the import."""
    options = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--tag", "mine")
    return start(*IMPATIENT, "worker", "--dispatcher", dispatcher.address, *options)


@pytest.fixture
def error_of(command_line: Any, tmp_path: Path) -> Callable[..., str]:
    """`error_of(*arguments)`: the error of a command that must not start."""

    def run(*arguments: str) -> str:
        command = command_line.start(*arguments, cwd=tmp_path)
        message = command.error()
        assert command.stdout == ""
        return str(message)

    return run


def test_control_planes_report_each_other(dispatcher: Role, worker: Role) -> None:
    sample = f'infeed_dispatcher_worker_reachable{{worker="{worker.address}"}}'
    wait_until(lambda: sample in dispatcher.get("/metrics"), "the worker is listed")
    assert dispatcher.metric(sample) == 1
    assert dispatcher.metric("infeed_dispatcher_workers") == 1
    assert dispatcher.metric("infeed_dispatcher_lost_tasks_total") == 0
    ready = json.loads(dispatcher.get("/readyz"))
    assert ready["ready"]
    assert ready["workers"][worker.address]["ready"]
    assert worker.metric("infeed_worker_wedged") == worker.metric("infeed_worker_tasks") == 0
    ready = json.loads(worker.get("/readyz"))
    assert ready["dispatchers"] == {dispatcher.address: {"ready": True, "reason": "it answers"}}
    for role, name in ((dispatcher, "dispatcher"), (worker, "worker")):
        assert f'infeed_build_info{{role="{name}",tensorflow="{tf.__version__}"' in role.get(
            "/metrics"
        )


def test_worker_log_omits_lines_of_tensorflow(worker: Role) -> None:
    assert worker.address  # it serves
    assert "worker is ready" in worker.log
    assert not re.search(r"^I\d{4} ", worker.log, re.MULTILINE), worker.log


OPEN = "neither encryption nor authentication; add --insecure"
TAKEN = (
    "cannot listen on {taken}: address already in use; stop the process that listens there, or "
    "give another --listen"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ("dispatcher", "--listen", "{taken}", "--http", "off"),
            TAKEN,
            id="dispatcher-port-in-use",
        ),
        pytest.param(
            ("worker", "--dispatcher", "{taken}", "--listen", "{taken}", "--http", "off"),
            TAKEN,
            id="worker-port-in-use",
        ),
        pytest.param(
            ("dispatcher", "--listen", "0.0.0.0:0", "--http", "off"), OPEN, id="open-dispatcher"
        ),
        pytest.param(
            ("worker", "--dispatcher", "127.0.0.1:1", "--listen", "0.0.0.0:0", "--http", "off"),
            OPEN,
            id="open-worker",
        ),
        pytest.param(
            ("dispatcher", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"),
            "--http 0.0.0.0:0: non-loopback address without TLS",
            id="open-http",
        ),
        pytest.param(
            ("dispatcher", "--listen", "127.0.0.1:0", "--http", "off", "--work-dir", "{file}"),
            "cannot write there",
            id="journal-in-a-file",
        ),
    ],
)
def test_role_that_cannot_start_exits_with_an_error(
    error_of: Callable[..., str],
    dispatcher: Role,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "file").touch()
    names = {"taken": dispatcher.address, "file": tmp_path / "file"}
    assert message.format(**names) in error_of(
        *(argument.format(**names) for argument in arguments)
    )


def test_worker_exits_on_sigterm_and_on_a_new_journal(
    command_line: Any, dispatcher: Role, worker: Role, tmp_path: Path
) -> None:
    script = IMPATIENT[1]
    command = ("python", script, "worker", "--dispatcher", dispatcher.address)
    other = command_line.start(*command, "--listen", "127.0.0.1:0", "--http", "off", cwd=tmp_path)
    assert other.address
    assert other.stdout.split()[3:] == ["(http", "off)"]
    other.signal(signal.SIGTERM)
    assert other.wait() == 0, other.stderr
    assert "Traceback" not in other.stderr
    assert worker.address
    dispatcher.kill()
    restarted = command_line.start(
        *("python", script, "dispatcher", "--listen", dispatcher.address, "--http", "off"),
        *("--work-dir", str(tmp_path / "empty")),
        cwd=tmp_path,
    )
    assert restarted.address == dispatcher.address
    assert worker.wait() == 3, worker.log
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
