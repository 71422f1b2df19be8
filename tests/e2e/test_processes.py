"""`infeed serve --processes`: one port, several processes, each as good as the other."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed

TEXT = """
pipelines:
  n:
    source: {arrays: n.npy}
    shuffle: {seed: 3}
    batch: {size: 4}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "n.npy", np.arange(100))
    (tmp_path / "pipelines.yaml").write_text(TEXT)
    return tmp_path


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def ready(http: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=10) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))


def until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_processes_serve_one_pipeline(command_line: Any, folder: Path) -> None:
    words = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--processes", "2")
    parent = command_line.start("serve", "pipelines.yaml", *words, cwd=folder)
    address = parent.address
    http = parent.stdout.split("(http ")[1].split(")")[0]
    assert ready(http)["ready"]
    both = children(parent.pid)
    assert len(both) == 2

    def epoch() -> list[Any]:
        with infeed.connect(address, "n", epochs=1) as feed:
            return [batch.sample_ids.tolist() for batch in feed]

    # Whichever process the kernel chooses for each.
    epochs = [epoch() for _ in range(6)]
    assert sorted(index for batch in epochs[0] for index in batch) == list(range(100))
    assert all(other == epochs[0] for other in epochs)
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    sent = [line for line in metrics.splitlines() if line.startswith("infeed_batches_total{")]
    assert sum(float(line.split()[-1]) for line in sent) == 6 * 25

    with infeed.connect(address, "n", epochs=1) as feed:
        before = [next(feed).sample_ids.tolist() for _ in range(5)]
        os.kill(both[0], signal.SIGKILL)
        after = [batch.sample_ids.tolist() for batch in feed]
    assert before + after == epochs[0]
    until(lambda: not ready(http)["ready"])
    assert "process" in ready(http)["reason"]
    until(lambda: ready(http)["ready"])
    assert "process 0 ended with status -9" in parent.stderr

    both = children(parent.pid)
    parent.signal(signal.SIGTERM)
    assert parent.wait() == 0
    assert not any(is_alive(pid) for pid in both)


def test_processes_end_with_their_parent(command_line: Any, folder: Path) -> None:
    words = ("--listen", "127.0.0.1:0", "--http", "off", "--processes", "2")
    parent = command_line.start("serve", "pipelines.yaml", *words, cwd=folder)
    assert parent.address
    both = children(parent.pid)
    parent.kill()
    until(lambda: not any(is_alive(pid) for pid in both))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--listen", "unix:/tmp/none/s"), "processes cannot share unix:/tmp/none/s"),
        (("--listen", "0.0.0.0:0"), "--insecure"),
        (("--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"), "--http 0.0.0.0:0"),
    ],
)
def test_what_cannot_be_shared(command_line: Any, folder: Path, words: Any, told: str) -> None:
    command = command_line.run("serve", "pipelines.yaml", "--processes", "2", *words, cwd=folder)
    assert command.status == 1
    assert told in command.stderr


def test_a_definition_that_is_wrong_ends_it(command_line: Any, folder: Path) -> None:
    (folder / "pipelines.yaml").write_text(TEXT.replace("n.npy", "m.npy"))
    words = ("--listen", "127.0.0.1:0", "--http", "off", "--processes", "2")
    command = command_line.run("serve", "pipelines.yaml", *words, cwd=folder)
    assert command.status == 1
    assert "m.npy" in command.stderr
    assert "error: the first process ended with status 1" in command.stderr


def test_a_dataset_whose_ranks_have_to_meet(command_line: Any, folder: Path) -> None:
    (folder / "draws.py").write_text(
        "import tensorflow as tf\n"
        "def make():\n"
        "    return tf.data.Dataset.range(100).map(lambda x: {'x': tf.random.uniform([])})\n"
    )
    text = "pipelines: {n: {source: {dataset: draws:make}, batch: {size: 4}}}"
    (folder / "pipelines.yaml").write_text(text)
    words = ("--listen", "127.0.0.1:0", "--http", "off", "--processes", "2")
    command = command_line.run("serve", "pipelines.yaml", *words, cwd=folder)
    assert command.status == 1
    assert "n.source.dataset: it has no order" in command.stderr
    assert "leave out --processes" in command.stderr
