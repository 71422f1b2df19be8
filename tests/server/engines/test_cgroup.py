"""Tests of the container's limits, read from files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infeed_server.engines import cgroup as module


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_CGROUP_ROOT", tmp_path / "groups")
    monkeypatch.setattr(module, "_PROCESS_CGROUP", tmp_path / "own")
    (tmp_path / "own").write_text("1:name=systemd:/\n0::/\n")
    (tmp_path / "groups").mkdir()
    return tmp_path / "groups"


def test_without_limits_the_host_counts(groups: Path) -> None:
    assert module.cpu_count() == len(os.sched_getaffinity(0))
    assert module.memory_bytes() > 1 << 28


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("100000 100000", 1), ("50000 100000", 1), ("150000 100000", 2), ("max 100000", None)],
)
def test_cpu_quota_of_cgroup_v2(groups: Path, quota: str, expected: int | None) -> None:
    (groups / "cpu.max").write_text(quota + "\n")
    allowed = len(os.sched_getaffinity(0))
    assert module.cpu_count() == min(expected or allowed, allowed)


def test_memory_limit_of_cgroup_v2(groups: Path) -> None:
    (groups / "memory.max").write_text("max\n")
    unlimited = module.memory_bytes()
    (groups / "memory.max").write_text("1000000\n")
    assert module.memory_bytes() == 1_000_000 < unlimited


def test_lowest_limit_of_all_ancestors_counts(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/slice/unit\n")
    unit = groups / "slice" / "unit"
    unit.mkdir(parents=True)
    (unit / "memory.max").write_text("3000000\n")
    (unit.parent / "memory.max").write_text("1000000\n")
    (unit / "cpu.max").write_text("max 100000\n")
    (unit.parent / "cpu.max").write_text("100000 100000\n")
    assert module.memory_bytes() == 1_000_000
    assert module.cpu_count() == 1


def test_controllers_of_cgroup_v1_have_own_paths(groups: Path) -> None:
    (groups.parent / "own").write_text("4:memory:/batch\n3:cpu,cpuacct:/jobs\n0::/\n")
    (groups / "memory" / "batch").mkdir(parents=True)
    (groups / "memory" / "batch" / "memory.limit_in_bytes").write_text("4000000\n")
    (groups / "cpu" / "jobs").mkdir(parents=True)
    (groups / "cpu" / "jobs" / "cpu.cfs_quota_us").write_text("50000\n")
    (groups / "cpu" / "jobs" / "cpu.cfs_period_us").write_text("100000\n")
    assert module.memory_bytes() == 4_000_000
    assert module.cpu_count() == 1


def test_missing_path_falls_back_to_the_root(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/docker/1f2e\n")
    (groups / "memory.max").write_text("5000000\n")
    assert module.memory_bytes() == 5_000_000


@pytest.mark.parametrize("controller", ["", "pids"])
def test_threads_left_are_the_limit_less_those_that_run(groups: Path, controller: str) -> None:
    folder = groups / controller
    folder.mkdir(exist_ok=True)
    assert module.pids_left() is None
    (folder / "pids.max").write_text("max\n")
    (folder / "pids.current").write_text("90\n")
    assert module.pids_left() is None
    (folder / "pids.max").write_text("100\n")
    assert module.pids_left() == 10


def test_limits_of_a_cpu_and_2_gib_are_described_with_their_origin(groups: Path) -> None:
    assert "no lower quota" in module.describe()
    assert "of the host" in module.describe()
    (groups / "cpu.max").write_text("100000 100000\n")
    (groups / "memory.max").write_text(f"{2 << 30}\n")
    expected = "1 CPU threads (quota of 1 CPUs), 2.00 GiB of memory (limit of the control group)"
    if len(os.sched_getaffinity(0)) > 1:
        assert module.describe() == expected


def test_memory_above_which_a_process_is_slowed_down_is_a_limit(groups: Path) -> None:
    (groups / "memory.max").write_text("3000000\n")
    (groups / "memory.high").write_text("2000000\n")
    assert module.memory_bytes() == 2_000_000
    (groups / "memory.high").write_text("max\n")
    assert module.memory_bytes() == 3_000_000


def test_host_is_the_limit_above_which_no_other_counts(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_host_memory_bytes", lambda: 5_000_000)
    (groups / "memory.max").write_text("6000000\n")
    assert module.memory_bytes() == 5_000_000


def test_processes_share_the_limits_and_each_has_a_cpu(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_process_count", 1)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(8)))
    (groups / "cpu.max").write_text("600000 100000\n")
    (groups / "memory.max").write_text("8000000\n")
    assert (module.cpu_count(), module.memory_bytes()) == (6, 8_000_000)
    module.set_process_count(4)
    assert (module.cpu_count(), module.memory_bytes()) == (1, 2_000_000)
    assert module.describe().endswith("; a share of 1/4 of both")
    module.set_process_count(9)
    assert module.cpu_count() == 1


def test_lowest_limit_of_threads_counts(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/unit\n")
    (groups / "unit").mkdir()
    for folder, limit in ((groups, 100), (groups / "unit", 500)):
        (folder / "pids.max").write_text(f"{limit}\n")
        (folder / "pids.current").write_text("90\n")
    assert module.pids_left() == 10


def test_path_out_of_the_tree_is_not_followed(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/../other\n")
    (groups.parent / "other").mkdir()
    (groups.parent / "other" / "memory.max").write_text("1000000\n")
    (groups / "memory.max").write_text("2000000\n")
    assert module.memory_bytes() == 2_000_000
