"""What this process may use: processors and memory, as the container allows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


_sharers = 1


def share(processes: int) -> None:
    """Says that so many processes, this one among them, share what the host gives."""
    global _sharers  # noqa: PLW0603 - a fact of the process
    _sharers = processes


def processors() -> int:
    """Processors: the affinity mask, cut down to the container's quota, at least one.

    A share of a processor counts as one, so that no part of the quota is left unused.
    """
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *map(math.ceil, _quotas())]) // _sharers)


def memory_bytes() -> int:
    """Memory: the machine's, cut down to the container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_read(group / "memory.max") for group in _groups("")]
    limits += [_read(group / "memory.limit_in_bytes") for group in _groups("memory")]
    return min([total, *(int(limit) for limit in limits if limit.isdigit())]) // _sharers


def _quotas() -> Iterator[float]:
    """Processors by each quota there is."""
    # cgroup v2 has "QUOTA PERIOD" or "max PERIOD" in one file, v1 a file each with -1 for none.
    pairs = [_read(group / "cpu.max").partition(" ")[::2] for group in _groups("")]
    pairs += [
        (_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))
        for group in _groups("cpu")
    ]
    for quota, period in pairs:
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _groups(controller: str) -> Iterator[Path]:
    """This process's control group and those above it; any of them can set a limit.

    `controller` is empty for cgroup v2, which has one tree for all. Inside of a container the
    path can be the host's, and not be there: the root, which is the container's group, then is.
    """
    root = _CGROUP / controller
    own = root / _path(controller).strip("/")
    yield own
    while own != root:
        own = own.parent
        yield own


def _path(controller: str) -> str:
    """Where this process is in the controller's tree."""
    for line in _read(_OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        # A process outside of the container's own tree has a path that leads up: `/../..`.
        if controller in controllers.split(",") and ".." not in path:
            return path
    return ""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
