"""What this process may use: processors and memory, as the container allows."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def processors() -> int:
    """Processors: the affinity mask, cut down to the container's quota, at least one."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota()
    return max(1, min(allowed, int(quota))) if quota else allowed


def memory_bytes() -> int:
    """Memory: the machine's, cut down to the container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _read("memory.max") or _read("memory/memory.limit_in_bytes")
    return min(total, int(text)) if text.isdigit() else total


def _quota() -> float | None:
    # cgroup v2 has "QUOTA PERIOD" or "max PERIOD" in one file, v1 a file each with -1 for none.
    quota, _, period = _read("cpu.max").partition(" ")
    if not quota:
        quota, period = _read("cpu/cpu.cfs_quota_us"), _read("cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _read(name: str) -> str:
    try:
        return (_CGROUP / name).read_text().strip()
    except OSError:
        return ""
