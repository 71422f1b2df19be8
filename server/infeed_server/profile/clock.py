"""The clocks of a profile: elapsed time, CPU time, and the time that threads waited for a core."""

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


def total_delay_seconds() -> float:
    """Returns the seconds that threads of these processes could run but had no core; 0: unknown."""
    return sum(
        delay for pid in (os.getpid(), *_descendants(os.getpid())) for delay in _delay_seconds(pid)
    )


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
    total_delay: Callable[[], float] = total_delay_seconds
    """Seconds that threads of all these processes waited for a core."""
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


def _delay_seconds(pid: int) -> Iterator[float]:
    """Yields the seconds that each thread was runnable, and another had its core."""
    for stat in _PROC.glob(f"{pid}/task/*/schedstat"):
        try:
            yield int(stat.read_text().split()[1]) / 1e9
        except OSError:  # the thread has ended
            continue


def _cpu_seconds(pid: int) -> float:
    try:
        # The name, in brackets, may hold blanks. User and system time are fields 14 and 15.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
