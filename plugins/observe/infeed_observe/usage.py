"""Usage of this process and its children: processor time and memory; idle time of processors."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_PROC = Path("/proc")

_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of /proc/PID/stat after the name of the command."""

_IDLE, _IOWAIT = 4, 5
"""Fields of a processor's line in /proc/stat."""


def cpu_seconds() -> float:
    """Returns the processor time of this process and of its children, running or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    _, *running = _processes(os.getpid())
    ticks = sum(int(process[_UTIME]) + int(process[_STIME]) for process in running)
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / _TICKS_PER_SECOND


def idle_seconds() -> float | None:
    """Returns the total idle time of the processors in this process's mask; None if the host does
    not show it."""
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = map(str.split, _read(_PROC / "stat").splitlines())
    idle = [int(line[_IDLE]) + int(line[_IOWAIT]) for line in lines if line and line[0] in names]
    return sum(idle) / _TICKS_PER_SECOND if idle else None


def resident_bytes() -> int:
    """Returns the resident memory of this process and of its children."""
    return sum(int(process[_RSS]) for process in _processes(os.getpid())) * _PAGE_BYTES


def _processes(pid: int) -> Iterator[list[str]]:
    """Yields the fields of a process and its descendants, except those that have ended."""
    if text := _read(_PROC / str(pid) / "stat"):
        yield text.rpartition(")")[2].split()
    tasks = _PROC / str(pid) / "task"
    for task in _listed(tasks):
        for child in map(int, _read(f"{tasks}/{task}/children").split()):
            yield from _processes(child)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:  # the process has ended
        return []


def _read(path: Path | str) -> str:
    # A file of each thread is read every second, so without the cost of text and path layers.
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read().decode()
    except OSError:  # the process or thread has ended
        return ""
