"""The clocks of a profile: elapsed time, CPU time of this process, and that of the whole host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)
"""Of the first line of /proc/stat: user, nice, system, irq, softirq and steal."""


def total_cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of all processes below it."""
    return time.process_time() + sum(map(_cpu_seconds, _descendants(os.getpid())))


def host_cpu_seconds() -> float:
    """Returns the CPU seconds of all processes of the host; 0 where they are unknown."""
    try:
        first = (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    return sum(int(first[column]) for column in _BUSY_COLUMNS) / _TICKS_PER_SECOND


@dataclass(frozen=True)
class Clock:
    """Functions that return seconds since any fixed time; a test replaces them."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    """CPU seconds of this process alone: fine enough for milliseconds."""
    total_cpu: Callable[[], float] = total_cpu_seconds
    """CPU seconds with those of worker processes, in steps of 10 ms."""
    host_cpu: Callable[[], float] = host_cpu_seconds


def _descendants(pid: int) -> Iterator[int]:
    for tasks in _PROC.glob(f"{pid}/task/*/children"):
        try:
            children = tasks.read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _cpu_seconds(pid: int) -> float:
    try:
        # The name, in brackets, may hold blanks. User and system time are fields 14 and 15.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
