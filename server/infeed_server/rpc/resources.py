"""File descriptors, threads and memory: what a server needs, and keeps from its peers.

Without a descriptor no data file can be opened, without a thread TensorFlow aborts, and without
memory the kernel kills the process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from infeed.shared.errors import ConfigError
from infeed_server.engines import cgroup

_FILE_RESERVE = 256
"""Descriptors that connections leave for data files; a quarter of them if there are few."""

_MAX_CONNECTIONS = 1024
"""Open connections, with or without a token; one more is closed at once."""

_THREAD_RESERVE = 64
"""Threads that streams leave for the rest of the process."""

_THREADS_PER_STREAM = 10
"""Threads that a stream starts at most: three here, the others to read a dataset."""

_THREADS_OF_SERVER = 36
"""Threads of a process that makes batches on two cores, without its streams."""

_MEMORY_OF_SERVER_BYTES = 256 << 20
"""Memory of a process with TensorFlow and one pipeline of numbers. With less the kernel kills it,
while it starts and without a line in its log."""

_COUNT_INTERVAL_SECONDS = 1.0


class OutOfResourcesError(Exception):
    """Too few threads are left."""


def raise_file_limit() -> int:
    """Raises the limit of open files to what the system allows; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def max_connections() -> int:
    """Returns how many connections leave enough descriptors for data files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, limit - min(_FILE_RESERVE, limit // 4))


def require_memory_for_start() -> None:
    """Raises `ConfigError` if the container's limit of memory is too low for any server."""
    limit = cgroup.memory_bytes()
    if limit < _MEMORY_OF_SERVER_BYTES:
        raise ConfigError(
            f"a server needs at least {_MEMORY_OF_SERVER_BYTES >> 20} MiB of memory, but its limit "
            f"is {limit >> 20} MiB: raise the container's limit of memory; one pipeline of photos "
            "takes 2 GiB"
        )


class ThreadReserve:
    """Knows how many more threads the process may start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._user_threads = 0
        self._counted: float | None = None

    def require(self, streams: int = 0) -> None:
        """Raises `OutOfResourcesError` if too few threads are left for so many more streams."""
        self._require(_THREAD_RESERVE + streams * _THREADS_PER_STREAM)

    def require_for_start(self, processes: int) -> None:
        """Raises `ConfigError` if the processes of a server could not serve a single stream."""
        needed = processes * _THREADS_OF_SERVER + _THREAD_RESERVE + _THREADS_PER_STREAM
        try:
            self._require(needed)
        except OutOfResourcesError as error:
            raise ConfigError(f"a server needs at least {needed} threads, but {error}") from None

    def _require(self, needed: int) -> None:
        left = cgroup.pids_left()
        if left is not None and left < needed:
            raise OutOfResourcesError(
                f"the container may start only {left} more threads: raise its limit of pids"
            )
        left = self._left_for_user()
        if left is not None and left < needed:
            raise OutOfResourcesError(
                f"the user may start only {left} more threads: raise the limit (ulimit -u)"
            )

    def _left_for_user(self) -> int | None:
        """Returns how many threads the user may start; None: more than the system has."""
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        if limit == resource.RLIM_INFINITY or os.geteuid() == 0:  # root has no such limit
            return None
        if _system_threads() < limit // 2:  # cheap, and almost always true
            return None
        now = self._clock()
        if self._counted is None or now - self._counted >= _COUNT_INTERVAL_SECONDS:
            self._user_threads, self._counted = _user_threads(), now
        return limit - self._user_threads


def _system_threads() -> int:
    """Returns the number of threads of all users."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _user_threads() -> int:
    """Returns the number of threads of this process's user."""
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # the process has ended
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                # Fields after the command's name, which can contain anything.
                text = Path(entry.path, "stat").read_text().rpartition(")")[2]
                count += int(text.split()[17])
    return count
