"""Abnormal ends: servers killed or stopped, failing datasets, interrupted indexing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.tfrecords import example, write_records

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
    server = command_line.serve(DEFINITION, folder, "127.0.0.1:0", "--grace", "0.5")
    yield server
    server.kill()


def test_sigterm_ends_a_server_that_reads_a_dataset_far_ahead(server: Any) -> None:
    with infeed.connect(server.address, "endless") as feed:
        state = {**feed.state(), "position": 1 << 40}
    with (
        infeed.connect(server.address, "endless", state=state, reconnect_timeout=0) as far,
        infeed.connect(server.address, "slow", reconnect_timeout=0.2, prefetch_bytes=0) as slow,
    ):
        with pytest.raises(infeed.StallError, match=r"no batch within 0\.1 s"):
            far.next(0.1)
        # Other feeds are served meanwhile.
        with infeed.connect(server.address, "endless", epochs=1) as near:
            assert len(list(near)) == 5
        slow.next(60)
        server.signal(signal.SIGTERM)
        with pytest.raises(infeed.ServerUnavailableError, match=r"no reconnect within 0\.2 s"):
            list(slow)
        assert server.wait() == 0  # at the end of the grace period: a request of `far` is pending
    assert "Traceback" not in server.stderr


def test_error_of_a_dataset_follows_its_good_batches(server: Any, folder: Path) -> None:
    with infeed.connect(server.address, "fails_late", epochs=1) as feed:
        assert feed.next(60)["features"].tolist() == list(range(8))
        assert feed.next(60)["features"].tolist() == list(range(8, 16))
        with pytest.raises(infeed.UserCodeError) as caught:
            feed.next(60)
    lines = str(caught.value).splitlines()
    assert "bad_end_functions:fails_late" in lines[0]
    assert lines[-1] == "ValueError: cannot do with 20"
    assert '  File "bad_end_functions.py", line 8, in check' in lines
    assert f'  File "{folder}/bad_end_functions.py", line 8, in check' in server.stderr
    assert not [line for line in lines if "site-packages" in line or "__autograph" in line]
    with infeed.connect(server.address, "numbers") as feed:
        assert feed.next(60)["x"].tolist() == [0, 1]


# The command line, whose indexing stops after the first kilobyte of a file.
HALTED = """
import sys, time
import infeed.cli
from infeed_formats.tfrecord import framing

read_window = framing._read_window

def read_first_window(handle, path, offset, size, *, skips):
    if offset > 0:
        print("reading on", file=sys.__stdout__, flush=True)  # `serve` redirects sys.stdout
        while True:
            time.sleep(0.01)  # a signal just before one long sleep would wait for its end
    return read_window(handle, path, offset, size, skips=skips)

framing._SCAN_WINDOW = 1 << 10
framing._read_window = read_first_window
infeed.cli.main()
"""


def test_interrupted_indexing_leaves_no_files(command_line: Any, tmp_path: Path) -> None:
    data = tmp_path / "numbers.tfrecord"
    write_numbers(data, 1000)
    definition = f"""
pipelines:
  numbers:
    source: {{tfrecord: {data}, features: {{x: int64}}}}
    batch: {{size: 2}}
"""
    (tmp_path / "pipelines.yaml").write_text(definition)
    (tmp_path / "halted.py").write_text(HALTED)
    before = set(tmp_path.iterdir())
    serve = ("serve", "pipelines.yaml", "--listen", "127.0.0.1:0", "--http", "off")
    for arguments, number, expected in (
        (("index", "numbers.tfrecord"), signal.SIGKILL, -signal.SIGKILL),
        (serve, signal.SIGKILL, -signal.SIGKILL),
        (serve, signal.SIGTERM, 128 + signal.SIGTERM),
    ):
        command = command_line.start("python", "halted.py", *arguments, cwd=tmp_path)
        command.wait_until(lambda one=command: one.stdout == "reading on\n", "it indexes the file")
        command.signal(number)
        assert command.wait() == expected, command.stderr
        assert "Traceback" not in command.stderr
        assert set(tmp_path.iterdir()) == before
    server = command_line.serve(definition, tmp_path)
    with infeed.connect(server.address, "numbers") as feed:
        assert feed.next(60)["x"].tolist() == [0, 1]
        assert feed.spec.sample_count == 1000
    server.kill()


def write_numbers(file: Path, count: int) -> None:
    """Writes records of x = 0, 1, ... modulo 100."""
    examples = [example({"x": [number]}) for number in range(100)]
    write_records(file, (examples[number % 100] for number in range(count)))
