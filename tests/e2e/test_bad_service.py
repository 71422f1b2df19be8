"""What goes wrong with TensorFlow's data service is said clearly, and soon."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tests.e2e.service import Cluster, numbers_text

import infeed
from infeed_server.cluster import marker

WITHIN = 200
"""Seconds that any of these may take on a busy machine."""


def nobody() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def error_of(command: Any) -> str:
    """What a command that must fail says: one error, no traceback of infeed's own."""
    assert command.wait(WITHIN) == 1, command.stderr
    before, found, message = ("\n" + command.stderr).rpartition("\nerror: ")
    assert found, command.stderr
    assert "Traceback" not in before
    return str(message.strip())


@pytest.fixture(scope="module")
def cluster(command_line: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One dispatcher, one worker and a gateway; other servers are for the tests."""
    folder = tmp_path_factory.mktemp("cluster")
    started = Cluster(command_line, folder, "pipelines:" + numbers_text(folder, 40, 4))
    yield started.start(1)
    started.stop()


def joining(cluster: Cluster, text: str, folder: Path, *options: str) -> Any:
    (folder / "pipelines.yaml").write_text(text)
    words = ("serve", "pipelines.yaml", "--listen", "127.0.0.1:0", "--http", "off")
    engine = ("--engine", "tf-data-service", "--dispatcher", cluster.addresses["dispatcher"])
    return cluster.command_line.start(*words, *engine, *options, cwd=folder)


@pytest.mark.slow  # it waits half a minute for a dispatcher that may still come
def test_nobody_at_the_dispatchers_address(command_line: Any, tmp_path: Path) -> None:
    gone = nobody()
    worker = command_line.start(
        "worker", "--dispatcher", gone, "--listen", "127.0.0.1:0", "--http", "off", cwd=tmp_path
    )
    message = error_of(worker)
    assert f"no dispatcher of TensorFlow's data service answers at {gone}" in message
    assert "Connection refused" in message


@pytest.mark.slow
def test_a_server_that_finds_no_dispatcher(command_line: Any, tmp_path: Path) -> None:
    gone = Cluster(command_line, tmp_path, "", addresses={"dispatcher": nobody()})
    message = error_of(joining(gone, "pipelines:" + numbers_text(tmp_path, 40, 4), tmp_path))
    assert "TensorFlow's data service is not ready after 45 s: no dispatcher" in message
    assert gone.addresses["dispatcher"] in message


@pytest.mark.slow
def test_a_worker_that_nobody_can_reach(cluster: Cluster, tmp_path: Path) -> None:
    wrong = nobody()
    dispatcher = cluster.addresses["dispatcher"]
    worker = cluster.command_line.start(
        *("worker", "--dispatcher", dispatcher, "--listen", "127.0.0.1:0", "--http", "off"),
        *("--advertise", wrong),
        cwd=tmp_path,
    )
    message = error_of(worker)
    assert wrong in message
    assert "--advertise" in message


def test_python_in_a_pipeline(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "import tensorflow as tf\n"
        "def doubled(sample):\n"
        "    double = tf.py_function(lambda x: x * 2, [sample['number']], tf.int64)\n"
        "    return {**sample, 'double': tf.ensure_shape(double, [])}\n"
    )
    text = "pipelines:" + numbers_text(tmp_path, 40, 4)
    text = text.replace("      - map: ", "      - map: steps:doubled\n      - map: ")
    message = error_of(joining(cluster, text, tmp_path))
    assert "pipelines.numbers.transforms[0].map" in message
    assert "steps:doubled calls Python for each sample" in message
    assert "--engine local" in message
    assert "pipelines.yaml:" in message


def test_an_open_address_of_an_own_dispatcher_is_refused(command_line: Any, tmp_path: Path) -> None:
    (tmp_path / "pipelines.yaml").write_text("pipelines:" + numbers_text(tmp_path, 40, 4))
    service = ("--engine", "tf-data-service", "--dispatcher-listen", "0.0.0.0:0")
    refused = command_line.start("serve", "pipelines.yaml", *service, cwd=tmp_path)
    message = error_of(refused)
    assert "--dispatcher-listen 0.0.0.0:0" in message
    assert "--insecure" in message


def test_another_tensorflow(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that runs TensorFlow 2.20, as it told the dispatcher: its name is in the error."""
    dispatcher, address = cluster.addresses["dispatcher"], cluster.addresses["worker 0"]
    monkeypatch.setattr(tf, "__version__", "2.20.0")
    marker.leave(dispatcher, marker.worker(address))
    monkeypatch.undo()
    try:
        text = "pipelines:" + numbers_text(tmp_path, 40, 4)
        message = error_of(joining(cluster, text, tmp_path))
    finally:
        marker.leave(dispatcher, marker.worker(address))
    assert f"worker {address} runs TensorFlow 2.20.0, this server {tf.__version__}" in message


def exhaust(feed: infeed.Feed) -> None:
    """Takes what was made already."""
    while True:
        feed.next(0.5)


def test_a_dispatcher_that_hangs_for_a_while(cluster: Cluster) -> None:
    """Stopped, not killed: connections stay without an answer. Then it goes on, and all do."""
    dispatcher = cluster.processes["dispatcher"]
    with infeed.connect(cluster.target, "numbers") as feed:
        next(feed)
        dispatcher.signal(signal.SIGSTOP)
        try:
            with pytest.raises(infeed.StallError):
                exhaust(feed)
        finally:
            dispatcher.signal(signal.SIGCONT)
        for _ in range(100):
            feed.next(200)
