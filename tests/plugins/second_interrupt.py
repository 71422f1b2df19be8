"""Second interrupt: ends a test run that is ending already, without a traceback.

The first one lets fixtures end what they have started. A second one would raise an exception in
them, wherever they are; what remains ends with the run's template process.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest

STATUS = 130
"""That of a command that was interrupted, as shells have it."""


def _end(_number: int, _frame: object) -> None:
    # Without stream objects: the handler may have interrupted one of them.
    os.write(sys.__stderr__.fileno(), b"\ninterrupted again: ended without the fixtures' ends\n")
    os._exit(STATUS)


def pytest_keyboard_interrupt() -> None:
    """Sets what the next interrupt does; in a worker nothing, for it ends with the run."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    signal.signal(signal.SIGINT, signal.SIG_IGN if is_worker else _end)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Lets nothing interrupt the last lines of the run."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
