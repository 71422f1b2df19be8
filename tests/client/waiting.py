"""Waits for conditions and blocked threads, and fake clocks."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

HANG_SECONDS = 60.0
"""Bound on every wait of a test, after which it fails."""


def until(condition: Callable[[], Any], seconds: float = HANG_SECONDS) -> None:
    """Waits until the condition holds. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            threads = ", ".join(thread.name for thread in infeed_threads())
            raise TimeoutError(f"not within {seconds:g} s; infeed's threads: {threads or 'none'}")
        time.sleep(0.005)


def innermost(frame: FrameType | None, count: int) -> tuple[str, ...]:
    """Returns the names of the innermost functions of a thread."""
    names = []
    while frame is not None and len(names) < count:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return tuple(names)


def current_frames() -> dict[int, FrameType]:
    """Returns each thread's frame. A garbage collection meanwhile can block Python for good, while
    another thread starts (gh-106883, in versions before 3.12.1)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()


def blocked_in(thread: threading.Thread, *functions: str) -> bool:
    """Returns whether the thread waits in these functions, its innermost ones."""
    frame = current_frames().get(thread.ident or 0)
    return innermost(frame, len(functions)) == functions


def any_blocked_in(*functions: str) -> bool:
    """Returns whether any thread waits in these functions, also one of another library."""
    frames = current_frames().values()
    return any(innermost(frame, len(functions)) == functions for frame in frames)


_earlier_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def leave_out_running_threads() -> None:
    """Leaves the threads of earlier tests, which may take a minute to end, out of what follows."""
    _earlier_threads.update(threading.enumerate())


def infeed_threads(name: str = "infeed") -> list[threading.Thread]:
    """Returns the client's threads of this test whose names start with `name`."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(name)]
    return [thread for thread in threads if thread not in _earlier_threads]


class Clock:
    """A fake of the module `time`, in which time passes by sleeping only."""

    def __init__(self, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self._on_sleep = on_sleep

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self._on_sleep()


class AheadClock:
    """A fake of the module `time` that is ahead of the real one, by every sleep."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.ahead += seconds
