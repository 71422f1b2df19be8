"""Processor time of this process and of its children, which run the user's Python."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
"""Fields of /proc/PID/stat after the name of the command."""


def cpu_seconds() -> float:
    """Returns the processor time of this process, and of its children that run or have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_seconds_of(pid) for pid in _children(os.getpid()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def _children(pid: int) -> list[int]:
    """Returns the ids of the processes below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(task).split()):
            found += [child, *_children(child)]
    return found


def _seconds_of(pid: int) -> float:
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND if fields else 0.0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
