"""File descriptors, threads and memory: what a server needs, and keeps from its peers.

Without a descriptor no data file can be opened, without a thread TensorFlow aborts, and without
memory the kernel kills the process.
"""

from __future__ import annotations

import contextlib
import resource

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


def raise_file_limit() -> None:
    """Raises the limit of open files to what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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


def require_threads_for_start(processes: int) -> None:
    """Raises `ConfigError` if the processes of a server could not serve a single stream."""
    needed = processes * _THREADS_OF_SERVER + _THREAD_RESERVE + _THREADS_PER_STREAM
    if problem := _missing(needed):
        raise ConfigError(f"a server needs at least {needed} threads, but {problem}")


def missing_threads(streams: int = 0) -> str:
    """Returns why the container has no threads for more streams; empty if it has."""
    return _missing(_THREAD_RESERVE + streams * _THREADS_PER_STREAM)


def _missing(needed: int) -> str:
    left = cgroup.pids_left()
    if left is None or left >= needed:
        return ""
    return f"the container may start only {left} more threads: raise its limit of pids"
