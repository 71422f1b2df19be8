"""CPU and memory of this process: the host's, limited by its control group (v1 and v2)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROCESS_CGROUP = Path("/proc/self/cgroup")

_MEMORY_FILES = (
    ("", "memory.max"),  # above it the kernel kills a process, above memory.high it slows it down
    ("", "memory.high"),
    ("memory", "memory.limit_in_bytes"),
)
_CPU_FILES = (("", "cpu.max"), ("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
"""Controllers of cgroup v1 with their files; no controller means v2, which has one tree for all.
"""

_process_count = 1


def set_process_count(count: int) -> None:
    """Divides the limits between `count` processes, this one included."""
    global _process_count  # noqa: PLW0603 - a property of the process
    _process_count = count


def process_count() -> int:
    """Returns the processes between which the limits are divided."""
    return _process_count


def cpu_count() -> int:
    """Returns the CPUs of the affinity mask, limited by the container's quota; at least one. A
    fraction counts as a whole CPU, so that no part of the quota stays unused."""
    pairs = (pair for files in _CPU_FILES for pair in _numbers(*files))
    quotas = [math.ceil(quota / period) for quota, period in pairs if period]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]) // _process_count)


def memory_bytes() -> int:
    """Returns the host's memory in bytes, limited by the container."""
    limits = [limit for files in _MEMORY_FILES for (limit,) in _numbers(*files)]
    return min([_host_memory_bytes(), *limits]) // _process_count


def describe() -> str:
    """Returns the CPUs and the memory of this process."""
    shared = f"; a share of 1/{_process_count} of both" if _process_count > 1 else ""
    return f"{cpu_count()} CPU threads, {memory_bytes() / 2**30:.2f} GiB of memory{shared}"


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _numbers(controller: str, *files: str) -> Iterator[list[int]]:
    """Yields the numbers in files of this process's control group, and of each of its ancestors.
    Any of them can set a limit; without one, a file has no number: `max` or -1. Inside a container
    the path can be the host's and not exist; the root, the container's own group, always exists."""
    root = group = _CGROUP_ROOT / controller
    for line in _read(_PROCESS_CGROUP).splitlines():
        _, controllers, path = line.split(":", 2)
        # The path of a process outside the container's own tree leads upwards: `/../..`.
        if controller in controllers.split(",") and ".." not in path:
            group = root / path.strip("/")
            break
    for folder in (group, *group.parents):
        texts = [_read(folder / file) for file in files]
        words = " ".join(texts).split()
        if all(texts) and all(word.isdigit() for word in words):
            yield [int(word) for word in words]
        if folder == root:
            return


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
