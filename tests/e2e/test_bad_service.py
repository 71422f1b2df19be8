"""Errors of a tf.data service cluster: wrong addresses, versions and pipelines, a hung process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.service import Cluster, numbers_text

import infeed

LOOPBACK = ("--listen", "127.0.0.1:0", "--http", "off")
TF_DATA_SERVICE = (
    *("serve", "pipelines.yaml", "--listen", "127.0.0.1:0", "--http", "off"),
    *("--engine", "tf-data-service"),
)


@pytest.fixture(scope="module")
def cluster(command_line: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One dispatcher, one worker and a gateway."""
    folder = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(command_line, folder, "pipelines:" + numbers_text(folder, 40, 4))
    yield cluster.start(1)
    cluster.stop()


@pytest.fixture
def closed(new_address: Callable[[], str]) -> str:
    """An address that refuses connections."""
    return new_address()


def gateway_error(cluster: Cluster, text: str, folder: Path) -> str:
    """Returns the error of another gateway of the cluster, with this definition."""
    (folder / "pipelines.yaml").write_text(text)
    arguments = (*TF_DATA_SERVICE, *LOOPBACK, "--dispatcher", cluster.addresses["dispatcher"])
    return str(cluster.command_line.start(*arguments, cwd=folder).error())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            ("worker", "--dispatcher", "{closed}", *LOOPBACK),
            [
                "no dispatcher of TensorFlow's data service answers at {closed}",
                "Connection refused",
            ],
            id="worker-without-dispatcher",
            marks=pytest.mark.slow,  # waits half a minute for the dispatcher
        ),
        pytest.param(
            (*TF_DATA_SERVICE, *LOOPBACK, "--dispatcher", "{closed}"),
            ["TensorFlow's data service is not ready after 45 s: no dispatcher", "{closed}"],
            id="gateway-without-dispatcher",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("worker", "--dispatcher", "{dispatcher}", *LOOPBACK, "--advertise", "{closed}"),
            ["{closed}", "--advertise"],
            id="unreachable-worker",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            (*TF_DATA_SERVICE, "--dispatcher-listen", "0.0.0.0:0"),
            ["--dispatcher-listen 0.0.0.0:0", "--insecure"],
            id="open-dispatcher",
        ),
    ],
)
def test_command_with_a_wrong_address_fails(
    cluster: Cluster, tmp_path: Path, closed: str, arguments: tuple[str, ...], expected: list[str]
) -> None:
    (tmp_path / "pipelines.yaml").write_text("pipelines:" + numbers_text(tmp_path, 40, 4))
    names = {"closed": closed, "dispatcher": cluster.addresses["dispatcher"]}
    command = cluster.command_line.start(
        *(argument.format(**names) for argument in arguments), cwd=tmp_path
    )
    message = command.error()
    for text in expected:
        assert text.format(**names) in message


def test_pipeline_that_calls_python_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "import tensorflow as tf\n"
        "def doubled(sample):\n"
        "    double = tf.py_function(lambda x: x * 2, [sample['number']], tf.int64)\n"
        "    return {**sample, 'double': tf.ensure_shape(double, [])}\n"
    )
    text = "pipelines:" + numbers_text(tmp_path, 40, 4)
    text = text.replace("      - map: ", "      - map: steps:doubled\n      - map: ")
    message = gateway_error(cluster, text, tmp_path)
    for expected in (
        "pipelines.numbers.transforms[0].map",
        "steps:doubled calls Python for each sample",
        "--engine local",
        "pipelines.yaml:",
    ):
        assert expected in message


def read_until_stalled(feed: infeed.Feed) -> None:
    while True:
        feed.next(0.5)


def test_feed_stalls_and_continues_with_its_dispatcher(cluster: Cluster) -> None:
    """The dispatcher is stopped, not killed: its connections stay open."""
    dispatcher = cluster.processes["dispatcher"]
    with infeed.connect(cluster.target, "numbers") as feed:
        next(feed)
        dispatcher.halt()
        try:
            with pytest.raises(infeed.StallError):
                read_until_stalled(feed)
        finally:
            dispatcher.signal(signal.SIGCONT)
        for _ in range(100):
            feed.next(200)
