"""Resident memory and processor time of processes, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_OWN = {"RssAnon:", "RssShmem:"}
"""Excludes file pages, such as libraries, which processes share and the kernel can evict."""


def resident_megabytes(*pids: int) -> float:
    """Returns the private memory in MB (10^6 bytes) of these processes and their descendants."""
    return sum(own_megabytes(pid) + resident_megabytes(*_children(pid)) for pid in pids)


def own_megabytes(pid: int) -> float:
    """Returns the private memory of one process in MB."""
    words = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line[1]) for line in words if line and line[0] in _OWN) * 1024 / 1e6


def cpu_seconds(*pids: int) -> float:
    """Returns the processor time so far of these processes and their live descendants."""
    return sum(_own_cpu_seconds(pid) + cpu_seconds(*_children(pid)) for pid in pids)


def _own_cpu_seconds(pid: int) -> float:
    # The process's name, in parentheses, may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def reset_peak() -> float:
    """Resets this process's peak memory; returns its current memory in MB, with file pages."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_megabytes()


def peak_megabytes() -> float:
    """Returns this process's peak memory in MB since `reset_peak`, with file pages."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
