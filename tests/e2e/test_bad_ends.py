"""Ends that nobody planned: servers killed or stopped, functions that fail, indices cut short."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed

FUNCTIONS = """
import time
import tensorflow as tf

def fails_late():
    def check(x):
        if x >= 20:
            raise ValueError(f"cannot do with {int(x)}")
        return x

    def stage(x):
        return tf.ensure_shape(tf.py_function(check, [x], tf.int64), [])

    return tf.data.Dataset.range(40).map(stage)

def endless():
    return tf.data.Dataset.range(10)

def slow(sample):
    def sleep(x):
        time.sleep(0.05)
        return x

    return {"x": tf.ensure_shape(tf.py_function(sleep, [sample["x"]], tf.int64), [])}
"""
DEFINITION = """
pipelines:
  numbers:
    source: {arrays: data.npz}
    batch: {size: 2}
  slow:
    source: {arrays: data.npz}
    transforms: [{map: bad_end_functions:slow}]
    batch: {size: 2}
  fails_late:
    source: {dataset: bad_end_functions:fails_late}
    batch: {size: 8}
  endless:
    source: {dataset: bad_end_functions:endless}
    batch: {size: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    np.savez(folder / "data.npz", x=np.arange(1000))
    (folder / "bad_end_functions.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture
def server(command_line: Any, folder: Path) -> Iterator[Any]:
    server = command_line.serve(DEFINITION, folder, "127.0.0.1:0", "--grace", "3")
    yield server
    server.kill()


def test_a_server_that_is_gone_before_the_first_batch(server: Any) -> None:
    with infeed.connect(server.address, "slow", batch_size=100, reconnect_timeout=1) as feed:
        server.kill()
        begin = time.monotonic()
        with pytest.raises(infeed.ServerUnavailableError, match="was lost at position 0 and did"):
            feed.next(20)
        assert time.monotonic() - begin < 5
        assert feed.state()["position"] == 0


def test_sigterm_while_batches_flow(server: Any) -> None:
    with infeed.connect(server.address, "slow", reconnect_timeout=1, prefetch_bytes=0) as feed:
        feed.next(20)
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        with pytest.raises(infeed.ServerUnavailableError, match="did not come back within 1 s"):
            list(feed)
        assert server.wait(20) == 0
        assert time.monotonic() - begin < 20
        assert "Traceback" not in server.stderr


def test_sigterm_while_a_dataset_is_read_up_to_a_far_position(server: Any) -> None:
    with infeed.connect(server.address, "endless") as feed:
        state = {**feed.state(), "position": 1 << 40}
    with infeed.connect(server.address, "endless", state=state, reconnect_timeout=0) as far:
        with pytest.raises(infeed.StallError, match=r"no batch within 0\.5 s"):
            far.next(0.5)
        # Others are served meanwhile.
        with infeed.connect(server.address, "endless", epochs=1) as near:
            assert len(list(near)) == 5
        server.signal(signal.SIGTERM)
        assert server.wait(20) == 0  # the far feed is owed a batch until the grace is over


def test_a_dataset_that_fails_late(server: Any, folder: Path) -> None:
    with infeed.connect(server.address, "fails_late", epochs=1) as feed:
        assert feed.next(20)["features"].tolist() == list(range(8))
        assert feed.next(20)["features"].tolist() == list(range(8, 16))
        with pytest.raises(infeed.UserCodeError) as caught:
            feed.next(20)
    told = str(caught.value).splitlines()
    assert "bad_end_functions:fails_late" in told[0]
    assert told[-1] == "ValueError: cannot do with 20"
    assert '  File "bad_end_functions.py", line 8, in check' in told
    assert f'  File "{folder}/bad_end_functions.py", line 8, in check' in server.stderr
    assert not [line for line in told if "site-packages" in line or "__autograph" in line]
    with infeed.connect(server.address, "numbers") as feed:
        assert feed.next(20)["x"].tolist() == [0, 1]


@pytest.mark.parametrize("action", ["raise", "mask"])
def test_a_file_that_changes_while_it_is_served(serve: Any, tmp_path: Path, action: str) -> None:
    data = tmp_path / "data.tfrecord"
    write_numbers(data, 1000)
    server = serve(f"""
pipelines:
  one:
    source: {{tfrecord: {data}, features: {{x: int64}}}}
    batch: {{size: 10}}
    on_error: {action}
    quarantine: bad.jsonl
""")
    with infeed.connect(str(server.address), "one", prefetch_bytes=0) as feed:
        feed.next(20)
        data.write_bytes(bytes(data.stat().st_size + 1))
        # No sample is to blame, so none is replaced.
        with pytest.raises(infeed.SourceError, match=f"{data} changed since it was indexed"):
            list(feed)
    assert not (tmp_path / "bad.jsonl").exists()


def test_killed_while_the_index_is_built(command_line: Any, tmp_path: Path) -> None:
    data = tmp_path / "big.tfrecord"
    record_bytes = write_numbers(data, 300_000)
    # A hundred megabytes of small records: the slowest kind.
    whole = data.read_bytes()
    data.write_bytes(whole * (100_000_000 // len(whole)))
    definition = f"""
pipelines:
  big:
    source: {{tfrecord: {data}, features: {{x: int64}}}}
    batch: {{size: 2}}
"""
    (tmp_path / "pipelines.yaml").write_text(definition)
    serve = ("serve", "pipelines.yaml", "--listen", "127.0.0.1:0", "--http", "off")
    for words, number, expected in (
        (("index", "big.tfrecord"), signal.SIGKILL, -signal.SIGKILL),
        (serve, signal.SIGKILL, -signal.SIGKILL),
        (serve, signal.SIGTERM, 128 + signal.SIGTERM),
    ):
        command = command_line.start(*words, cwd=tmp_path)
        until_open(command.pid, data)
        command.signal(number)
        assert command.wait(5) == expected, command.stderr
        assert "Traceback" not in command.stderr
        assert {path.name for path in tmp_path.iterdir()} == {data.name, "pipelines.yaml"}
    command = command_line.serve(definition, tmp_path)
    with infeed.connect(command.address, "big") as feed:
        assert feed.next(20)["x"].tolist() == [0, 1]
        assert feed.spec.sample_count == data.stat().st_size // record_bytes


def write_numbers(file: Path, count: int) -> int:
    """Records of x = 0, 1, ... modulo 100; the bytes of each."""
    examples = []
    for number in range(100):
        value = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
        features = tf.train.Features(feature={"x": value})
        examples.append(tf.train.Example(features=features).SerializeToString())
    with tf.io.TFRecordWriter(str(file)) as writer:
        for number in range(count):
            writer.write(examples[number % 100])
    return len(examples[0]) + 16


def until_open(pid: int, file: Path) -> None:
    """Waits until a process has the file open, which it does while it builds its index."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if link.readlink() == file:
                    return
        time.sleep(0.005)
    raise TimeoutError("the file was never opened")
