"""What the container allows, read from files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infeed_server.engines import host


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host, "_CGROUP", tmp_path / "groups")
    monkeypatch.setattr(host, "_OWN", tmp_path / "own")
    (tmp_path / "own").write_text("1:name=systemd:/\n0::/\n")
    (tmp_path / "groups").mkdir()
    return tmp_path / "groups"


def test_no_limits(cgroup: Path) -> None:
    assert host.processors() == len(os.sched_getaffinity(0))
    assert host.memory_bytes() > 1 << 28


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("100000 100000", 1), ("50000 100000", 1), ("150000 100000", 2), ("max 100000", None)],
)
def test_cgroup_v2_quota(cgroup: Path, quota: str, expected: int | None) -> None:
    (cgroup / "cpu.max").write_text(quota + "\n")
    allowed = len(os.sched_getaffinity(0))
    assert host.processors() == min(expected or allowed, allowed)


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


def test_memory_limit_of_cgroup_v1(cgroup: Path) -> None:
    (cgroup / "memory").mkdir()
    limit = cgroup / "memory" / "memory.limit_in_bytes"
    limit.write_text("9223372036854771712\n")
    assert host.memory_bytes() > 1 << 28
    limit.write_text("2000000\n")
    assert host.memory_bytes() == 2_000_000


def test_the_tightest_limit_on_the_way_up_counts(cgroup: Path) -> None:
    (cgroup.parent / "own").write_text("0::/slice/unit\n")
    unit = cgroup / "slice" / "unit"
    unit.mkdir(parents=True)
    (unit / "memory.max").write_text("3000000\n")
    (unit.parent / "memory.max").write_text("1000000\n")
    (unit / "cpu.max").write_text("max 100000\n")
    (unit.parent / "cpu.max").write_text("100000 100000\n")
    assert host.memory_bytes() == 1_000_000
    assert host.processors() == 1


def test_each_controller_of_cgroup_v1_has_a_path_of_its_own(cgroup: Path) -> None:
    (cgroup.parent / "own").write_text("4:memory:/batch\n3:cpu,cpuacct:/jobs\n0::/\n")
    (cgroup / "memory" / "batch").mkdir(parents=True)
    (cgroup / "memory" / "batch" / "memory.limit_in_bytes").write_text("4000000\n")
    (cgroup / "cpu" / "jobs").mkdir(parents=True)
    (cgroup / "cpu" / "jobs" / "cpu.cfs_quota_us").write_text("50000\n")
    (cgroup / "cpu" / "jobs" / "cpu.cfs_period_us").write_text("100000\n")
    assert host.memory_bytes() == 4_000_000
    assert host.processors() == 1


def test_the_path_of_a_container_without_a_namespace_is_not_there(cgroup: Path) -> None:
    (cgroup.parent / "own").write_text("0::/docker/1f2e\n")
    (cgroup / "memory.max").write_text("5000000\n")
    assert host.memory_bytes() == 5_000_000
