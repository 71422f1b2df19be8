"""`infeed serve --processes`: several interchangeable processes on one port."""

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
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.processes import serve_processes

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
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=100) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))


def sent(http: str) -> float:
    """Batches that all processes together have sent."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=100) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith("infeed_batches_total{")]
    return sum(map(float, counts))


def until(condition: Any, seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    until(lambda: sent(http) == 6 * 25)  # a batch is counted once it was sent

    with infeed.connect(address, "n", epochs=1) as feed:
        before = [next(feed).sample_ids.tolist() for _ in range(5)]
        os.kill(both[0], signal.SIGKILL)
        after = [batch.sample_ids.tolist() for batch in feed]
    assert before + after == epochs[0]
    told: list[dict[str, Any]] = []
    until(lambda: not told.append(ready(http)) and not told[-1]["ready"])
    assert "process" in told[-1]["reason"]
    until(lambda: ready(http)["ready"])
    assert "process 0 ended with status -9" in parent.stderr

    both = children(parent.pid)
    parent.signal(signal.SIGTERM)
    assert parent.wait() == 0
    assert not any(is_alive(pid) for pid in both)


# As the parent starts it: with the read end of a pipe, here a named one, as standard input.
ONE_OF_TWO = """
import os
import infeed.cli

os.dup2(os.open("parent", os.O_RDONLY), 0)
infeed.cli.main()
"""


def test_a_process_ends_with_its_parents_end_of_the_pipe(command_line: Any, folder: Path) -> None:
    os.mkfifo(folder / "parent")
    (folder / "one_of_two.py").write_text(ONE_OF_TWO)
    words = ("--listen", "127.0.0.1:0", "--http", "off", "--one-of", "2")
    process = command_line.start(
        *("python", "one_of_two.py", "serve", "pipelines.yaml", *words), cwd=folder
    )
    with (folder / "parent").open("w"):
        with infeed.connect(process.address, "n", epochs=1) as feed:
            assert len(list(feed)) == 25
        assert not process.ended
    assert process.wait() == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ServerOptions("unix:/tmp/none/s", None), "processes cannot share unix:/tmp/none/s"),
        (ServerOptions("0.0.0.0:0", None), "--insecure"),
        (ServerOptions("127.0.0.1:0", "0.0.0.0:0"), "--http 0.0.0.0:0"),
    ],
)
def test_what_cannot_be_shared(options: ServerOptions, told: str) -> None:
    with pytest.raises(infeed.ConfigError, match=told):
        serve_processes("pipelines.yaml", options, 2, pytest.fail, pytest.fail)


def test_a_dataset_whose_ranks_have_to_meet_ends_every_process(
    command_line: Any, folder: Path
) -> None:
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
    assert command.stdout == ""
    assert "n.source.dataset: it has no order" in command.stderr
    assert "leave out --processes" in command.stderr
    assert "error: the first process ended with status 1" in command.stderr
