"""`infeed dispatcher` and `infeed worker` as processes."""

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

import numpy as np
import pytest
import tensorflow as tf
from tests.e2e.service import until
from tests.harness.nursery import Nursery
from tests.harness.process import Process
from tests.harness.spawned import SpawnedProcess

from infeed.inquiry import Dispatcher
from infeed_server.cluster import marker

SERVICE = tf.data.experimental.service

# A dispatcher that infeed did not start: it tells nothing of its journal.
STRANGER = """
import sys, tensorflow as tf
from tensorflow.core.protobuf.service_config_pb2 import DispatcherConfig
server = tf.data.experimental.service.DispatchServer(DispatcherConfig(
    port=int(sys.argv[1]), protocol="grpc", work_dir=sys.argv[2], fault_tolerant_mode=True))
print(f"serving on 127.0.0.1:{server._address.rpartition(':')[2]} (http off)", flush=True)
sys.stdin.read()
"""
IMPATIENT = (sys.executable, str(Path(__file__).with_name("impatient.py")))


class Role:
    """A process that says where it serves."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._said: list[str] | None = None

    @property
    def said(self) -> list[str]:
        """The address for others and that of the control plane, once it serves."""
        if self._said is None:
            line = self.process.read_line(200)
            found = re.fullmatch(r"serving on (\S+) \(http (\S+)\)", line)
            assert found, f"{line!r}\n{self.log}"
            self._said = [found[1], found[2]]
        return self._said

    @property
    def address(self) -> str:
        return self.said[0]

    @property
    def log(self) -> str:
        return self.process.stderr

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.said[1]}{path}", timeout=60) as answer:
            return answer.read().decode()

    def metric(self, name: str) -> float:
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
    """Starts processes that load TensorFlow themselves."""
    folder = tmp_path_factory.mktemp("roles")
    running: list[Role] = []
    level = {"TF_CPP_MIN_LOG_LEVEL": os.environ["TF_CPP_MIN_LOG_LEVEL"]}

    def begin(*command: str) -> Role:
        log = folder / str(len(running))
        running.append(Role(SpawnedProcess(command, log, environment=level, reads_stdin=True)))
        return running[-1]

    yield begin
    for role in running:
        role.kill()


@pytest.fixture(scope="module")
def dispatcher(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    folder = tmp_path_factory.mktemp("dispatcher")
    options = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--work-dir", "journal")
    words = ("python", IMPATIENT[1], "dispatcher", *options)
    role = Role(nursery.start(words, folder / "log", folder))
    yield role
    role.kill()


@pytest.fixture(scope="module")
def worker(start: Start, dispatcher: Role) -> Role:
    """Loads TensorFlow itself, since it chooses before that what TensorFlow logs."""
    options = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--tag", "mine")
    return start(*IMPATIENT, "worker", "--dispatcher", dispatcher.address, *options)


@pytest.fixture
def refused(command_line: Any, tmp_path: Path) -> Callable[..., str]:
    """`refused(*words)`: the error of a role that must not start."""

    def run(*words: str) -> str:
        done = command_line.start(*words, cwd=tmp_path)
        assert (done.wait(), done.stdout) == (1, ""), done.stderr
        assert "Traceback" not in done.stderr
        return str(done.stderr.strip().splitlines()[-1])

    return run


def test_what_a_worker_sends_is_counted(dispatcher: Role, worker: Role) -> None:
    numbers = np.arange(1 << 18, dtype=np.int32)
    read = tf.data.Dataset.range(20).map(lambda n: numbers + tf.cast(n, tf.int32))
    service = f"grpc://{dispatcher.address}"
    assert [worker.address] == Dispatcher(dispatcher.address).workers()  # in this order: it waits
    made = 20 * numbers.nbytes
    read = read.apply(SERVICE.distribute("parallel_epochs", service, compression=None))
    found = iter(read)
    next(found)
    # While the reader lives: what the last look did not see goes with the connection.
    assert len(list(found)) == 19
    sent = "infeed_worker_served_bytes_total"
    until(lambda: worker.metric(sent) >= made, "the bytes are not counted")
    assert worker.metric(sent) < 1.1 * made
    assert worker.metric("infeed_worker_connections") >= 1
    assert worker.metric("infeed_worker_wedged") == 0
    del found
    # Of a job that has ended, a worker has no task for long.
    endless = tf.data.Dataset.range(10**9).apply(SERVICE.distribute("parallel_epochs", service))
    reading = iter(endless)
    next(reading)
    assert worker.metric("infeed_worker_tasks") == 1


def test_the_control_planes_tell_of_each_other(dispatcher: Role, worker: Role) -> None:
    shown = f'infeed_dispatcher_worker_reachable{{worker="{worker.address}"}}'
    until(lambda: shown in dispatcher.get("/metrics"), "the worker is not seen")
    assert dispatcher.metric(shown) == 1
    assert dispatcher.metric("infeed_dispatcher_workers") == 1
    assert dispatcher.metric("infeed_dispatcher_lost_tasks_total") == 0
    ready = json.loads(dispatcher.get("/readyz"))
    assert ready["ready"]
    assert ready["workers"][worker.address]["ready"]
    ready = json.loads(worker.get("/readyz"))
    assert ready["dispatchers"] == {dispatcher.address: {"ready": True, "reason": "it answers"}}
    for role, name in ((dispatcher, "dispatcher"), (worker, "worker")):
        assert f'infeed_build_info{{role="{name}",tensorflow="{tf.__version__}"' in role.get(
            "/metrics"
        )


def test_both_tell_their_tensorflow(dispatcher: Role, worker: Role) -> None:
    asked = Dispatcher(dispatcher.address)
    for role in (marker.DISPATCHER, marker.worker(worker.address)):
        assert marker.read(asked, role).tensorflow == tf.__version__


def test_information_of_tensorflow_is_left_out(worker: Role) -> None:
    assert "worker is ready" in worker.log
    assert not re.search(r"^[IE]\d{4} ", worker.log, re.MULTILINE), worker.log


def test_a_taken_port(dispatcher: Role, refused: Callable[..., str]) -> None:
    told = f"error: cannot listen on {dispatcher.address}: address already in use"
    assert refused("dispatcher", "--listen", dispatcher.address, "--http", "off") == told
    words = ("worker", "--dispatcher", dispatcher.address, "--listen", dispatcher.address)
    assert refused(*words, "--http", "off") == told


def test_other_machines_need_the_word(refused: Callable[..., str]) -> None:
    told = "without encryption and without asking who calls; add --insecure"
    assert told in refused("dispatcher", "--listen", "0.0.0.0:0", "--http", "off")
    words = ("worker", "--dispatcher", "127.0.0.1:1", "--listen", "0.0.0.0:0", "--http", "off")
    assert told in refused(*words)
    words = ("dispatcher", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0")
    assert "--http 0.0.0.0:0: other machines could connect" in refused(*words)


def test_a_journal_that_cannot_be_kept(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("dispatcher", "--listen", "127.0.0.1:0", "--http", "off", "--work-dir")
    assert "cannot write there" in refused(*words, str(tmp_path / "file"))


def test_sigterm_ends_a_worker_and_a_new_journal_too(
    start: Start, command_line: Any, dispatcher: Role, worker: Role, tmp_path: Path
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
    anew = command_line.start(
        *("python", script, "dispatcher", "--listen", dispatcher.address, "--http", "off"),
        *("--work-dir", str(tmp_path / "empty")),
        cwd=tmp_path,
    )
    assert anew.address == dispatcher.address
    assert worker.wait() == 3, worker.log
    assert f"worker {worker.address} has to be started anew: the dispatcher at " in worker.log
    assert "began a new journal" in worker.log
    anew.signal(signal.SIGTERM)
    assert anew.wait() == 0, anew.stderr
    assert "Traceback" not in anew.stderr


@pytest.mark.slow
def test_a_stuck_worker_ends_so_that_it_is_started_anew(start: Start, tmp_path: Path) -> None:
    first = start(sys.executable, "-c", STRANGER, "0", str(tmp_path / "first"))
    port = first.address.rpartition(":")[2]
    command = [*IMPATIENT, "worker", "--dispatcher", first.address]
    worker = start(*command, "--listen", "127.0.0.1:0", "--http", "off")
    assert worker.address
    read = tf.data.Dataset.range(3).apply(
        SERVICE.distribute("parallel_epochs", f"grpc://{first.address}", job_name="ends")
    )
    found = iter(read)
    next(found)
    first.kill()
    second = start(sys.executable, "-c", STRANGER, port, str(tmp_path / "second"))
    assert second.address == first.address
    assert worker.wait() == 3, worker.log
    assert "has to be started anew: TensorFlow cannot tell the dispatcher" in worker.log
    assert re.search(r"NOT_FOUND: Failed to send worker update: Task \d+ not found", worker.log)
