"""What the container allows, read from files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infeed_server.engines import host


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    return tmp_path


def test_no_limits(cgroup: Path) -> None:
    assert host.processors() == len(os.sched_getaffinity(0))
    assert host.memory_bytes() > 1 << 28


@pytest.mark.parametrize(
    ("quota", "expected"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None)]
)
def test_cgroup_v2_quota(cgroup: Path, quota: str, expected: int | None) -> None:
    (cgroup / "cpu.max").write_text(quota + "\n")
    assert host.processors() == (expected or len(os.sched_getaffinity(0)))


def test_cgroup_v1_quota(cgroup: Path) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert host.processors() == 1
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert host.processors() == len(os.sched_getaffinity(0))


def test_memory_limits(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text("max\n")
    unlimited = host.memory_bytes()
    (cgroup / "memory.max").write_text("1000000\n")
    assert host.memory_bytes() == 1_000_000 < unlimited
