"""Tests of the container's limits, read from files as the kernel writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infeed_server.processes import cgroup as module

HOST_BYTES = 5_000_000
HOST_CPUS = 8

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(own, {file: text})` writes this process's groups and the files of limits."""
    monkeypatch.setattr(module, "_CGROUP_ROOT", tmp_path / "groups")
    monkeypatch.setattr(module, "_PROCESS_CGROUP", tmp_path / "own")
    monkeypatch.setattr(module, "_host_memory_bytes", lambda: HOST_BYTES)
    monkeypatch.setattr(module, "_process_count", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(HOST_CPUS)))

    def write_files(own: str, files: dict[str, str]) -> None:
        (tmp_path / "own").write_text(own + "\n")
        for name, text in files.items():
            file = tmp_path / "groups" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")

    return write_files


ROOT = "1:name=systemd:/\n0::/"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (ROOT, {}, HOST_BYTES),
        (ROOT, {"memory.max": "max"}, HOST_BYTES),
        (ROOT, {"memory.max": "1000000"}, 1_000_000),
        (ROOT, {"memory.max": "3000000", "memory.high": "2000000"}, 2_000_000),
        (
            "0::/slice/unit",
            {"slice/unit/memory.max": "3000000", "slice/memory.max": "1000000"},
            1_000_000,
        ),
        ("4:memory:/batch\n0::/", {"memory/batch/memory.limit_in_bytes": "4000000"}, 4_000_000),
        # The path is the host's, and does not exist here.
        ("0::/docker/1f2e", {"memory.max": "4000000"}, 4_000_000),
        ("0::/../other", {"../other/memory.max": "1", "memory.max": "2000000"}, 2_000_000),
    ],
    ids=str,
)
def test_lowest_limit_of_memory_counts(
    write: Write, own: str, files: dict[str, str], expected: int
) -> None:
    write(own, files)
    assert module.memory_bytes() == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (ROOT, {}, HOST_CPUS),
        (ROOT, {"cpu.max": "max 100000"}, HOST_CPUS),
        (ROOT, {"cpu.max": "100000 100000"}, 1),
        (ROOT, {"cpu.max": "150000 100000"}, 2),
        (
            "0::/slice/unit",
            {"slice/unit/cpu.max": "max 100000", "slice/cpu.max": "100000 100000"},
            1,
        ),
        (
            "3:cpu,cpuacct:/jobs\n0::/",
            {"cpu/jobs/cpu.cfs_quota_us": "50000", "cpu/jobs/cpu.cfs_period_us": "100000"},
            1,
        ),
        (ROOT, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, HOST_CPUS),
    ],
    ids=str,
)
def test_lowest_quota_of_cpus_counts(
    write: Write, own: str, files: dict[str, str], expected: int
) -> None:
    write(own, files)
    assert module.cpu_count() == expected


def test_limits_are_described(write: Write) -> None:
    write(ROOT, {"cpu.max": "100000 100000", "memory.max": "2000000"})
    assert module.describe() == "1 CPU threads, 0.00 GiB of memory"


def test_processes_share_the_limits_and_each_has_a_cpu(write: Write) -> None:
    write(ROOT, {"cpu.max": "600000 100000", "memory.max": "4000000"})
    assert (module.cpu_count(), module.memory_bytes()) == (6, 4_000_000)
    module.set_process_count(4)
    assert (module.cpu_count(), module.memory_bytes()) == (1, 1_000_000)
    assert module.describe().endswith("; a share of 1/4 of both")
    module.set_process_count(9)
    assert module.cpu_count() == 1
