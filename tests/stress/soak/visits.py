"""Trainers that connect and disconnect repeatedly, in five ways.

    python -m tests.stress.soak.visits ADDRESS COUNT tidy|killed

`tidy` visits run in one process: each takes three batches and closes, or closes before the first,
or drops the feed without closing it. `killed` visits run in a process each: it takes two batches
and is killed, or is first halted and then killed. Prints the number of completed visits after each.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

from tests.stress.soak.trainer import Task

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
    while threading.active_count() > 1:  # those of the feed, which hold its batches
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


def _return_freed_memory() -> None:
    """Gives freed memory back to Linux, so that what is measured is held.

    glibc keeps batches that threads of the feed have freed: 70 to 140 MB, after a few hundred
    visits.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def main() -> None:
    address, count, kind = sys.argv[1:]
    visit = {"tidy": tidy, "killed": killed}[kind]
    for number in range(int(count)):
        visit(Task(address, "small", seed=number), number)
        _return_freed_memory()
        print(number + 1, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
