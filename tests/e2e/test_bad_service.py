"""What goes wrong with TensorFlow's data service is said clearly, and soon."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.e2e.service import Cluster, photos_text, told

import infeed

TF = tf.data.experimental.service

WITHIN = 60
"""Seconds that any of these may take."""


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
def cluster(
    command_line: Any, photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One dispatcher and one worker; servers are for the tests."""
    started = Cluster(command_line, tmp_path_factory.mktemp("cluster"), photos_text(photos))
    started.dispatch()
    started.work(0)
    yield started
    for process in started.processes.values():
        process.kill()


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
def test_a_server_that_finds_no_dispatcher(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    gone = Cluster(command_line, tmp_path, "", addresses={"dispatcher": nobody()})
    message = error_of(joining(gone, photos_text(photos), tmp_path))
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


def test_python_in_a_pipeline(cluster: Cluster, photos: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "import tensorflow as tf\n"
        "def grey(sample):\n"
        "    mean = tf.py_function(lambda x: x.numpy().mean(), [sample['image']], tf.float32)\n"
        "    return {**sample, 'mean': tf.ensure_shape(mean, [])}\n"
    )
    text = photos_text(photos).replace(
        "      - normalize", "      - map: steps:grey\n      - normalize"
    )
    message = error_of(joining(cluster, text, tmp_path))
    assert "pipelines.photos.transforms[3].map" in message
    assert "steps:grey calls Python for each sample" in message
    assert "--engine local" in message
    assert "pipelines.yaml:" in message


def test_python_in_a_dataset(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text(
        "import tensorflow as tf\n"
        "def counted():\n"
        "    spec = tf.TensorSpec((), tf.int64)\n"
        "    return tf.data.Dataset.from_generator(lambda: iter(range(9)), output_signature=spec)\n"
    )
    text = "pipelines:\n  n:\n    source: {dataset: datasets:counted}\n    batch: {size: 2}\n"
    message = error_of(joining(cluster, text, tmp_path))
    assert "pipelines.n.source.dataset" in message
    assert "calls Python for its elements" in message


def test_arrays_that_no_graph_can_hold(cluster: Cluster, tmp_path: Path) -> None:
    large = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (600, 1 << 20))
    large.flush()
    text = "pipelines:\n  n:\n    source: {arrays: x.npy}\n    batch: {size: 2}\n"
    message = error_of(joining(cluster, text, tmp_path))
    assert "pipelines.n.source.arrays" in message
    assert "600.0 MiB" in message
    assert "512.0 MiB" in message
    assert "TFRecords" in message


def test_options_that_do_not_fit_together(command_line: Any, tmp_path: Path) -> None:
    text = "pipelines:\n  n:\n    source: {images: .}\n    batch: {size: 2}\n"
    (tmp_path / "pipelines.yaml").write_text(text)

    def said(*options: str) -> str:
        return error_of(command_line.start("serve", "pipelines.yaml", *options, cwd=tmp_path))

    assert "--workers goes with --engine tf-data-service" in said("--workers", "2")
    service = ("--engine", "tf-data-service")
    assert "--dispatcher nowhere" in said(*service, "--dispatcher", "nowhere:0")
    assert "--insecure" in said(*service, "--dispatcher-listen", "0.0.0.0:0")


def test_another_tensorflow(
    cluster: Cluster, photos: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that says that it runs TensorFlow 2.20: named when a pipeline is registered."""
    from infeed_server.cluster import marker

    dispatcher = cluster.addresses["dispatcher"]
    worker = TF.WorkerServer(
        TF.WorkerConfig(dispatcher, worker_address="127.0.0.1:%port%", heartbeat_interval_ms=100)
    )
    address = "127.0.0.1:" + worker._address.rpartition(":")[2]
    monkeypatch.setattr(tf, "__version__", "2.20.0")
    marker.leave(dispatcher, marker.worker(address), None)
    monkeypatch.undo()
    message = error_of(joining(cluster, photos_text(photos), tmp_path))
    assert f"worker {address} runs TensorFlow 2.20.0, this server {tf.__version__}" in message


def test_a_trainer_with_another_tensorflow_or_without_a_way_to_the_workers(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import infeed.tensorflow

    cluster = Cluster(command_line, tmp_path, photos_text(photos)).start(1)
    try:
        monkeypatch.setattr(tf, "__version__", "2.20.0")
        with pytest.raises(infeed.ConfigError, match=r"this process has TensorFlow 2\.20\.0"):
            infeed.tensorflow.distribute(cluster.target, "photos")
        monkeypatch.undo()
        cluster.processes["dispatcher"].kill()
        with pytest.raises(infeed.ServerUnavailableError, match="no dispatcher"):
            infeed.tensorflow.distribute(cluster.target, "photos", timeout=2)
    finally:
        for process in cluster.processes.values():
            process.kill()


def test_the_local_engine_cannot_be_read_from_workers(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    server = command_line.serve(photos_text(photos), tmp_path)
    local = Cluster(command_line, tmp_path, "", addresses={"server": server.address})
    (tmp_path / "go").touch()
    result = told(local.trainer(tmp_path / "go"))
    server.kill()
    assert result["error"] == "InvalidRequestError"
    assert "'photos' has no data set to read from workers" in result["message"]


def exhaust(feed: infeed.Feed) -> None:
    """Takes what was made already."""
    while True:
        feed.next(2)


def test_a_dispatcher_that_hangs_for_a_while(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    """Stopped, not killed: connections stay, and nobody answers. Then it goes on, and all do."""
    cluster = Cluster(command_line, tmp_path, photos_text(photos)).start(1)
    dispatcher = cluster.processes["dispatcher"]
    try:
        with infeed.connect(cluster.target, "photos") as feed:
            next(feed)
            dispatcher.signal(signal.SIGSTOP)
            with pytest.raises(infeed.StallError):
                exhaust(feed)
            dispatcher.signal(signal.SIGCONT)
            for _ in range(100):
                feed.next(60)
    finally:
        for process in cluster.processes.values():
            process.kill()
