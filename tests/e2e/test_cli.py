"""Commands `demo`, `peek`, `index` and `--help`."""

from __future__ import annotations

import errno
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.harness.tfrecords import write_records
from tests.harness.waiting import wait_until

from infeed.shared.errors import ConfigError
from infeed_tools.demo.run import check_folder, run_demo


def test_demo_trains_to_95_percent(command_line: Any, tmp_path: Path) -> None:
    process = command_line.start("demo", "--directory", "kept", cwd=tmp_path)
    assert process.wait() == 0, process.stderr
    output = process.stdout + process.stderr
    accuracy = re.search(r"accuracy on unseen images: ([\d.]+)%", output)
    assert accuracy is not None
    assert float(accuracy[1]) >= 95
    assert re.search(r"\d+ images/s", output)
    assert re.search(r"verdict: (not|moderately|highly) input-bound", output)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["test", "train"]


@pytest.mark.slow
def test_server_of_a_demo_that_is_killed_ends(command_line: Any, tmp_path: Path) -> None:
    process = command_line.start("demo", cwd=tmp_path)
    process.wait_until(lambda: "served from another process" in process.stderr, "it trains")
    address = re.search(r"at (127\.0\.0\.1:\d+)", process.stderr)
    assert address is not None
    process.signal(signal.SIGKILL)
    host, _, port = address[1].partition(":")

    def is_refused() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex((host, int(port))) == errno.ECONNREFUSED

    wait_until(is_refused, "the server has ended")


@pytest.mark.parametrize("file", ["photo.jpg", "train/mine/photo.jpg", "pipelines.yaml"])
def test_demo_leaves_a_folder_with_other_files_alone(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(ConfigError, match="has other files, and the demo writes its own"):
        run_demo(Console(), 1, tmp_path)
    assert [item for item in tmp_path.rglob("*") if item.is_file()] == [path]
    assert path.read_text() == "mine"


def test_demo_takes_the_folder_of_an_earlier_one(tmp_path: Path) -> None:
    for file in ("train/disc/00001.jpg", "pipelines.yaml", "weights.h5"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    check_folder(tmp_path)
    check_folder(tmp_path / "missing")


def test_index_is_built_then_checked(command_line: Any, tmp_path: Path) -> None:
    for shard in range(2):
        records = (b"record %d" % number for number in range(5 + shard))
        write_records(tmp_path / f"part-{shard}.tfrecord", records)
    for state in ("built", "checked"):
        run = command_line.run("index", "part-*.tfrecord", cwd=tmp_path)
        assert run.status == 0, run.stderr
        assert run.stdout.count(f"index {state}") == 2
        assert "11 records in 2 files" in run.stdout
    content = bytearray((tmp_path / "part-1.tfrecord").read_bytes())
    content[12] ^= 1
    (tmp_path / "part-1.tfrecord").write_bytes(content)
    run = command_line.run("index", "part-*.tfrecord", "--rebuild", cwd=tmp_path)
    assert run.status == 0, run.stderr
    assert "11 records in 2 files, 1 of them damaged" in run.stdout
    assert "part-1.tfrecord: 1 records are damaged, at byte 0: bad samples" in run.stderr
    with (tmp_path / "part-0.tfrecord").open("ab") as out:
        out.write(b"truncated")
    run = command_line.run("index", "part-*.tfrecord", cwd=tmp_path)
    assert run.status == 1
    assert "part-0.tfrecord" in run.stderr
    assert "Traceback" not in run.stderr
