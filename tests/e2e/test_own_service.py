"""`infeed serve --engine tf-data-service --workers n`: all of it in one command."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.e2e.service import kept, photos_text

import infeed


def until(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def served(http: str) -> dict[str, float]:
    """Bytes by worker, as the server's metrics tell."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^infeed_service_served_bytes\{worker="(.+)"\} (\S+)$', text, re.MULTILINE)
    return {worker: float(size) for worker, size in found}


def test_it_reads_survives_a_worker_and_leaves_nothing(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "pipelines.yaml").write_text(photos_text(photos))
    server = command_line.start(
        *("serve", "pipelines.yaml", "--engine", "tf-data-service", "--workers", "2"),
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grace", "1"),
        cwd=tmp_path,
    )
    address = server.address
    http = server.stdout.split()[4].rstrip(")")
    workers = [pid for pid in children(server.pid) if b"worker" in cmdline(pid)]
    assert len(workers) == 2

    seen: Counter[int] = Counter()
    with infeed.connect(address, "photos", epochs=1) as feed:
        for batch in feed:
            seen.update(kept([batch.sample_ids.tolist()]))
    assert seen == dict.fromkeys(range(photos.count), 1)
    until(lambda: len([size for size in served(http).values() if size > 10_000]) == 2)
    before = set(served(http))

    os.kill(workers[0], signal.SIGKILL)
    until(lambda: "starting it again" in server.stderr)
    seen.clear()
    with infeed.connect(address, "photos", epochs=1) as feed:  # it waits for the new one
        for batch in feed:
            seen.update(kept([batch.sample_ids.tolist()]))
    assert seen == dict.fromkeys(range(photos.count), 1)
    assert set(served(http)) == before, "a worker comes back where it was"

    now = [pid for pid in children(server.pid) if b"worker" in cmdline(pid)]
    server.signal(signal.SIGTERM)
    assert server.wait(30) == 0, server.stderr
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in now), 10)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_a_server_that_was_killed_goes_on_from_its_journal(
    command_line: Any, photos: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "pipelines.yaml").write_text(photos_text(photos))
    words = ("serve", "pipelines.yaml", "--engine", "tf-data-service", "--work-dir", "journal")
    places = ("--listen", "127.0.0.1:0", "--http", "off", "--grace", "1")
    killed = command_line.start(*words, *places, cwd=tmp_path)
    workers = children(killed.pid)
    with infeed.connect(killed.address, "photos") as feed:  # the worker has something to do
        next(feed)
        killed.signal(signal.SIGKILL)
    server = command_line.start(*words, *places, cwd=tmp_path)
    with infeed.connect(server.address, "photos", epochs=1) as feed:
        seen = Counter(kept(batch.sample_ids.tolist() for batch in feed))
    assert seen == dict.fromkeys(range(photos.count), 1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    server.signal(signal.SIGTERM)
    assert server.wait(30) == 0, server.stderr
