"""Waits for a condition, with a generous deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 500.0
"""Deadline of a wait: a guard against hanging, so long that a busy machine never meets it."""

_INTERVAL_SECONDS = 0.01


class HarnessError(Exception):
    """A test or a run cannot go on: a process failed, or what is waited for did not come."""


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    timeout: float = TIMEOUT_SECONDS,
    *,
    interval: float = _INTERVAL_SECONDS,
) -> None:
    """Returns once the condition is true, looking every `interval` seconds.

    Raises `HarnessError` with `what` was waited for after `timeout` seconds; a function is called
    then, so that it can add what is known by that time.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise HarnessError(f"after {timeout:g} s still not: {text}")
        time.sleep(interval)


__all__ = ["TIMEOUT_SECONDS", "HarnessError", "wait_until"]
