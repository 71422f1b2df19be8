"""`infeed serve --engine tf-data-service --workers N`: an embedded data service."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.harness.children import children, is_alive
from tests.harness.waiting import wait_until
from tests.plugins.service.e2e.cluster import numbers_text, valid_ids

import infeed

IMPATIENT = str(Path(__file__).with_name("impatient.py"))

SAMPLES = 320


def worker_pids(pid: int) -> list[int]:
    return [child for child in children(pid) if b"worker" in cmdline(child)]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def read_epoch(address: str) -> Counter[int]:
    with infeed.connect(address, "numbers", epochs=1) as feed:
        return Counter(valid_ids(batch.sample_ids.tolist() for batch in feed))


def test_embedded_service_survives_the_kill_of_its_worker(
    command_line: Any, tmp_path: Path
) -> None:
    (tmp_path / "pipelines.yaml").write_text("pipelines:" + numbers_text(tmp_path, SAMPLES, 8))
    server = command_line.start(
        *("python", IMPATIENT, "serve", "pipelines.yaml", "--engine", "tf-data-service"),
        *("--listen", "127.0.0.1:0", "--http", "off", "--grace", "60"),
        cwd=tmp_path,
    )
    address = server.address
    (first,) = worker_pids(server.pid)

    assert read_epoch(address) == dict.fromkeys(range(SAMPLES), 1)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "restarting it" in server.stderr, "the worker is restarted")
    # The feed waits for the new worker.
    assert read_epoch(address) == dict.fromkeys(range(SAMPLES), 1)

    (second,) = worker_pids(server.pid)
    assert second != first

    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.stderr
    wait_until(lambda: not is_alive(second), "the worker exits with its server")


@pytest.fixture
def three_ports() -> str:
    """An address whose port and the next two are free."""
    for port in range(20_000, 30_000, 3):
        try:
            with ExitStack() as stack:
                for number in range(3):
                    server = socket.create_server(("127.0.0.1", port + number))
                    stack.enter_context(closing(server))
            return f"127.0.0.1:{port}"
        except OSError:
            continue
    raise AssertionError("no three ports are free")


@pytest.mark.slow
def test_killed_server_restarts_from_its_journal(
    command_line: Any, tmp_path: Path, three_ports: str
) -> None:
    (tmp_path / "pipelines.yaml").write_text("pipelines:" + numbers_text(tmp_path, SAMPLES, 8))
    arguments = ("serve", "pipelines.yaml", "--engine", "tf-data-service", "--work-dir", "journal")
    arguments += ("--dispatcher-listen", three_ports)
    options = ("--workers", "2", "--listen", "127.0.0.1:0", "--http", "off", "--grace", "60")
    killed = command_line.start(*arguments, *options, cwd=tmp_path)
    with infeed.connect(killed.address, "numbers") as feed:  # so that a worker has a task
        next(feed)
        workers = worker_pids(killed.pid)
        assert len(workers) == 2
        killed.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, workers)), "the workers exit with their server")
    server = command_line.start(*arguments, *options, cwd=tmp_path)
    assert read_epoch(server.address) == dict.fromkeys(range(SAMPLES), 1)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.stderr
