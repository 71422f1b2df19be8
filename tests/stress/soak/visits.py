"""Trainers that connect and disconnect repeatedly, in five ways.

    python -m tests.stress.soak.visits ADDRESS COUNT tidy|killed

`tidy` visits run in one process: each takes three batches and closes, or closes before the first,
or drops the feed without closing it. `killed` visits run in a process each: it takes two batches
and is killed, or is first halted and then killed. Prints the number of completed visits after each.
"""

from __future__ import annotations

import os
import signal
import sys
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


def main() -> None:
    address, count, kind = sys.argv[1:]
    visit = {"tidy": tidy, "killed": killed}[kind]
    for number in range(int(count)):
        visit(Task(address, "small", seed=number), number)
        print(number + 1, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
