"""Trainers that connect and disconnect repeatedly, in five ways.

    python -m tests.stress.soak.visits ADDRESS COUNT tidy|killed

`tidy` visits run in one process: each takes three batches and closes, or closes before the first,
or drops the feed without closing it. `killed` visits run in a process each: it takes two batches
and is killed, or is first halted and then killed. Prints the number of completed visits after each.
Then waits for a line, since the next visit holds batches.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

from tests.stress.soak.trainer import Task

_M_MMAP_THRESHOLD = -3
"""Of malloc.h."""

_STOPPED_SECONDS = 0.1
"""Time from the halt of a process to its kill, in which the server prepares further batches."""


def tidy(task: Task, number: int) -> None:
    feed = task.connect()
    if number % 3 == 0:
        for _ in range(3):
            feed.next()
        feed.close()
    elif number % 3 == 1:
        feed.close()
    else:
        feed.next()
        del feed
    while threading.active_count() > 1:  # the feed's, which hold its batches
        time.sleep(0.001)


def killed(task: Task, number: int) -> None:
    child = os.fork()
    if not child:
        feed = task.connect()
        feed.next()
        feed.next()
        os.kill(os.getpid(), signal.SIGSTOP if number % 2 else signal.SIGKILL)
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        time.sleep(_STOPPED_SECONDS)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _return_freed_batches() -> None:
    """Makes glibc give the memory of freed batches back to Linux, so that what is measured is held.

    Otherwise it keeps 40 to 140 MB of them, more on a busy machine.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        assert set_option(_M_MMAP_THRESHOLD, 1 << 20)


def main() -> None:
    address, count, kind = sys.argv[1:]
    _return_freed_batches()
    visit = {"tidy": tidy, "killed": killed}[kind]
    for number in range(int(count)):
        visit(Task(address, "small", seed=number), number)
        print(number + 1, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
