"""Usage: processor time and memory of this process and its children, which run the user's Python.

Also the idle time of the processors that this process may use.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_PROC = Path("/proc")

_UTIME, _STIME = 11, 12
"""Fields of /proc/PID/stat after the name of the command."""

_IDLE, _IOWAIT = 3, 4
"""Fields of a processor in /proc/stat after its name."""


def cpu_seconds() -> float:
    """Returns the processor time of this process, and of its children that run or have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_seconds_of(pid) for pid in _children(os.getpid()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def idle_seconds() -> float | None:
    """Returns the time that the processors of this process's mask were idle, summed over them.

    None where the host does not say.
    """
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = (line.split() for line in _read(_PROC / "stat").splitlines())
    idle = [
        int(fields[_IDLE]) + int(fields[_IOWAIT])
        for name, *fields in filter(None, lines)
        if name in names
    ]
    return sum(idle) / _TICKS_PER_SECOND if idle else None


def resident_bytes() -> int:
    """Returns the resident memory of this process and of its children."""
    pids = [os.getpid(), *_children(os.getpid())]
    return sum(_pages_of(pid) for pid in pids) * _PAGE_BYTES


@dataclass(frozen=True)
class Usage:
    """Functions that return the usage so far, or at present; a test replaces them."""

    cpu: Callable[[], float] = cpu_seconds
    idle: Callable[[], float | None] = idle_seconds
    memory: Callable[[], int] = resident_bytes


def _children(pid: int) -> list[int]:
    """Returns the ids of the processes below a process."""
    found = []
    for task in (_PROC / str(pid) / "task").glob("*/children"):
        for child in map(int, _read(task).split()):
            found += [child, *_children(child)]
    return found


def _seconds_of(pid: int) -> float:
    fields = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND if fields else 0.0


def _pages_of(pid: int) -> int:
    fields = _read(_PROC / str(pid) / "statm").split()
    return int(fields[1]) if fields else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
