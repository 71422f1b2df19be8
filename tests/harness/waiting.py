"""Polling for a condition, with a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 500.0
"""Bound on a wait: guards against hanging, and is too long to be reached on a busy machine."""

_POLL_INTERVAL_SECONDS = 0.01


class HarnessError(Exception):
    """A process failed, or a condition was not met in time."""


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    timeout: float = TIMEOUT_SECONDS,
    *,
    interval: float = _POLL_INTERVAL_SECONDS,
) -> None:
    """Returns once the condition is true, checking it every `interval` seconds.

    After `timeout` seconds raises `HarnessError` with `what` the condition is; a function is called
    only then, and can add the state at that time.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise HarnessError(f"not met after {timeout:g} s: {text}")
        time.sleep(interval)
