"""Priority of threads: one that answers probes runs before those that make batches.

Linux alone has a priority for each thread. A thread begins with that of the thread that starts it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_RAISED_BY = 10
"""Niceness less than that of the process."""


def raise_priority() -> None:
    """Raises the priority of this thread where the process may: as root, or with CAP_SYS_NICE."""
    _set_niceness(_process_niceness() - _RAISED_BY)


def reset_priority() -> None:
    """Gives this thread the priority of the process: its starter may have a raised one."""
    _set_niceness(_process_niceness())


@contextmanager
def unraised_priority() -> Iterator[None]:
    """Resets the priority of this thread for the block, which may start threads."""
    if sys.platform != "linux":
        yield
        return
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    reset_priority()
    try:
        yield
    finally:
        _set_niceness(before)


def _process_niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


def _set_niceness(value: int) -> None:
    if sys.platform == "linux":
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value)
