"""Usage: processor time and memory of this process and its children, which run the user's Python.

Also the idle time of the processors that this process may use.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_PROC = Path("/proc")

_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of /proc/PID/stat after the name of the command."""

_IDLE, _IOWAIT = 3, 4
"""Fields of a processor in /proc/stat after its name."""


def cpu_seconds() -> float:
    """Returns the processor time of this process, and of its children that run or have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(int(one[_UTIME]) + int(one[_STIME]) for one in _descendants(os.getpid()))
    own = time.process_time()
    return own + ended.ru_utime + ended.ru_stime + running / _TICKS_PER_SECOND


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
    processes = [*_stat(os.getpid()), *_descendants(os.getpid())]
    return sum(int(one[_RSS]) for one in processes) * _PAGE_BYTES


@dataclass(frozen=True)
class Usage:
    """Functions that return the usage so far, or at present; a test replaces them."""

    cpu: Callable[[], float] = cpu_seconds
    idle: Callable[[], float | None] = idle_seconds
    memory: Callable[[], int] = resident_bytes


def _descendants(pid: int) -> Iterator[list[str]]:
    """Yields the fields of the processes below a process that run."""
    for task in (_PROC / str(pid) / "task").glob("*/children"):
        for child in map(int, _read(task).split()):
            yield from _stat(child)
            yield from _descendants(child)


def _stat(pid: int) -> Iterator[list[str]]:
    """Yields the fields of a process; nothing if it has ended."""
    if text := _read(_PROC / str(pid) / "stat"):
        yield text.rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
