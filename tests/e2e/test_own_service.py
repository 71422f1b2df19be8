"""`infeed serve --engine tf-data-service --workers n`: all of it in one command."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.service import kept, numbers_text, until
from tests.harness.children import children, is_alive

import infeed

IMPATIENT = str(Path(__file__).with_name("impatient.py"))

SAMPLES = 320

MUCH = 50_000
"""Bytes: more than a worker sends for an epoch, and for questions."""


def workers_of(pid: int) -> list[int]:
    return [child for child in children(pid) if b"worker" in cmdline(child)]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def served(http: str) -> dict[str, float]:
    """Bytes by worker, from the server's metrics."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r'^infeed_service_served_bytes\{worker="(.+)"\} (\S+)$', text, re.MULTILINE)
    return {worker: float(size) for worker, size in found}


def read_epoch(address: str) -> Counter[int]:
    with infeed.connect(address, "numbers", epochs=1) as feed:
        return Counter(kept(batch.sample_ids.tolist() for batch in feed))


def test_it_reads_survives_a_worker_and_leaves_nothing(command_line: Any, tmp_path: Path) -> None:
    (tmp_path / "pipelines.yaml").write_text("pipelines:" + numbers_text(tmp_path, SAMPLES, 8))
    server = command_line.start(
        *("python", IMPATIENT, "serve", "pipelines.yaml", "--engine", "tf-data-service"),
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grace", "60"),
        cwd=tmp_path,
    )
    address = server.address
    http = server.stdout.split()[4].rstrip(")")
    (first,) = workers_of(server.pid)

    assert read_epoch(address) == dict.fromkeys(range(SAMPLES), 1)
    # While the connections live: what they send after the last look is not counted.
    with infeed.connect(address, "numbers") as feed:

        def much_was_sent() -> bool:
            for _ in range(40):
                next(feed)
            return any(size > MUCH for size in served(http).values())

        until(much_was_sent, "the bytes of the worker are not counted")
    before = served(http)
    assert len(before) == 1

    os.kill(first, signal.SIGKILL)
    until(lambda: "starting it again" in server.stderr, "the end of a worker is not noticed")
    # The reading waits for the new worker.
    assert read_epoch(address) == dict.fromkeys(range(SAMPLES), 1)

    def counts_anew() -> bool:
        now = served(http)
        return set(now) != set(before) or any(now[each] < before[each] for each in before)

    until(counts_anew, "the new worker is not asked")
    assert set(served(http)) == set(before), "a worker comes back where it was"
    (second,) = workers_of(server.pid)
    assert second != first

    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.stderr
    until(lambda: not is_alive(second), "a worker outlives its server")


@pytest.mark.slow
def test_a_server_that_was_killed_goes_on_from_its_journal(
    command_line: Any, tmp_path: Path
) -> None:
    (tmp_path / "pipelines.yaml").write_text("pipelines:" + numbers_text(tmp_path, SAMPLES, 8))
    words = ("serve", "pipelines.yaml", "--engine", "tf-data-service", "--work-dir", "journal")
    places = ("--workers", "2", "--listen", "127.0.0.1:0", "--http", "off", "--grace", "60")
    killed = command_line.start(*words, *places, cwd=tmp_path)
    with infeed.connect(killed.address, "numbers") as feed:  # the worker has something to do
        next(feed)
        workers = workers_of(killed.pid)
        assert len(workers) == 2
        killed.signal(signal.SIGKILL)
    server = command_line.start(*words, *places, cwd=tmp_path)
    assert read_epoch(server.address) == dict.fromkeys(range(SAMPLES), 1)
    assert not any(map(is_alive, workers))
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.stderr
