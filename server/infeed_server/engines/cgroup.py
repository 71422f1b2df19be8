"""CPU, memory and threads of this process: the host's, cut to its control group's (v1, v2)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROCESS_CGROUP = Path("/proc/self/cgroup")

_process_count = 1


def set_process_count(count: int) -> None:
    """Divides the limits between `count` processes, this one included."""
    global _process_count  # noqa: PLW0603 - a property of the process
    _process_count = count


def process_count() -> int:
    """Returns the processes between which the limits are divided."""
    return _process_count


def cpu_count() -> int:
    """Returns the CPUs of the affinity mask, cut to the container's quota; at least one.

    A fraction of a CPU counts as one, so that no part of the quota is left unused.
    """
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *map(math.ceil, _cpu_quotas())]) // _process_count)


def memory_bytes() -> int:
    """Returns the host's memory in bytes, cut to the container's limit."""
    # Above memory.high the kernel slows a process down; above the others it kills it.
    limits = [
        _read(group / name) for group in _groups("") for name in ("memory.max", "memory.high")
    ]
    limits += [_read(group / "memory.limit_in_bytes") for group in _groups("memory")]
    numbers = (int(limit) for limit in limits if limit.isdigit())
    return min([_host_memory_bytes(), *numbers]) // _process_count


def pids_left() -> int | None:
    """Returns how many threads the control group may start; None without a limit."""
    left = [
        int(limit) - int(count)
        for group in (*_groups(""), *_groups("pids"))
        if (limit := _read(group / "pids.max")).isdigit()
        and (count := _read(group / "pids.current")).isdigit()
    ]
    return min(left, default=None)


def describe() -> str:
    """Returns the CPUs and the memory of this process, and what they were derived from."""
    allowed, total = len(os.sched_getaffinity(0)), _host_memory_bytes()
    quota = min(_cpu_quotas(), default=math.inf)
    cpus = f"quota of {quota:g} CPUs" if quota < allowed else f"{allowed} allowed, no lower quota"
    limited = memory_bytes() * _process_count < total - _process_count
    memory = "limit of the control group" if limited else "of the host, no lower limit"
    shared = f"; a share of 1/{_process_count} of both" if _process_count > 1 else ""
    return (
        f"{cpu_count()} CPU threads ({cpus}), {memory_bytes() / 2**30:.2f} GiB of memory "
        f"({memory}){shared}"
    )


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu_quotas() -> Iterator[float]:
    """Yields the CPUs that each quota allows."""
    # cgroup v2 has "QUOTA PERIOD" or "max PERIOD" in one file; v1 a file for each, -1: no quota.
    pairs = [_read(group / "cpu.max").partition(" ")[::2] for group in _groups("")]
    pairs += [
        (_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))
        for group in _groups("cpu")
    ]
    for quota, period in pairs:
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _groups(controller: str) -> Iterator[Path]:
    """Yields this process's control group and its ancestors; any of them can set a limit.

    `controller` is empty for cgroup v2, which has one tree for all. Inside of a container the
    path can be the host's and not exist here; the root, the container's own group, always does.
    """
    root = _CGROUP_ROOT / controller
    group = root / _group_path(controller).strip("/")
    yield group
    while group != root:
        group = group.parent
        yield group


def _group_path(controller: str) -> str:
    """Returns this process's path in the controller's tree."""
    for line in _read(_PROCESS_CGROUP).splitlines():
        _, controllers, path = line.split(":", 2)
        # A process outside of the container's own tree has a path upwards: `/../..`.
        if controller in controllers.split(",") and ".." not in path:
            return path
    return ""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
