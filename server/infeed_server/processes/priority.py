"""Priority of threads: one that answers probes runs before those that make batches.

Linux alone has a priority for each thread, which begins with that of its starter. Without a
capability a thread can only lower its own. So a server's main thread lowers its priority before it
starts others, and leaves behind a thread that starts those of the original priority.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

LOWERED_BY = 10
"""Niceness of threads that make batches, more than that of the process at its start."""

_unlowered: ThreadPoolExecutor | None = None
"""A thread of the original priority; None: the priority was not lowered."""


def lower_priority() -> None:
    """Lowers the priority of the process, except for threads of `start_unlowered`.

    For a process that does nothing but serve: the priority cannot be raised again. The main thread
    calls it before it starts others, since those that run already keep their priority.
    """
    global _unlowered  # noqa: PLW0603 - as the priority, it belongs to the process
    if sys.platform == "linux" and _unlowered is None:
        _unlowered = ThreadPoolExecutor(1, "infeed-starter")
        _unlowered.submit(threading.get_native_id).result()  # until the thread runs
        _set_niceness(_process_niceness() + LOWERED_BY)


def start_unlowered(thread: threading.Thread) -> None:
    """Starts a thread with the priority that the process had before `lower_priority`."""
    if _unlowered is None:
        thread.start()
    else:
        _unlowered.submit(thread.start).result()


def reset_priority() -> None:
    """Gives this thread the priority of the process, if a thread with a higher one started it."""
    if sys.platform == "linux":
        _set_niceness(_process_niceness())


def _process_niceness() -> int:
    """Returns that of the main thread."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


def _set_niceness(value: int) -> None:
    with suppress(PermissionError):  # a sandbox may forbid it, such as ~@resources of systemd
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value)
