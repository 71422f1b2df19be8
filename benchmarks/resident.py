"""The memory of processes, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

_OWN = {"RssAnon:", "RssShmem:"}
"""Not the pages of files, such as libraries, which processes share and the kernel can drop."""


def resident_megabytes(*pids: int) -> float:
    """MB (10^6 bytes) of their own that these processes and all below them have in memory."""
    return sum(own_megabytes(pid) + resident_megabytes(*_children(pid)) for pid in pids)


def own_megabytes(pid: int) -> float:
    """The same of one process alone."""
    words = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line[1]) for line in words if line and line[0] in _OWN) * 1024 / 1e6


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def reset_peak() -> float:
    """Forgets how large this process ever was; gives how large it is, in MB, files' pages too."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_megabytes()


def peak_megabytes() -> float:
    """The most that this process had in memory since `reset_peak`, files' pages too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
