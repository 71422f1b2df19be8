"""Processes of simulated trainers: Ctrl-C while they start."""

from __future__ import annotations

import signal
from multiprocessing import resource_tracker

import pytest

from infeed.loadtest.workers import _start


def blocked() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


class FakeProcess:
    """A process that starts as those of `multiprocessing` do."""

    is_protected = False

    def start(self) -> None:
        resource_tracker.ensure_running()
        self.is_protected = blocked()


def test_first_process_is_started_without_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = False

    def ensure_running() -> None:
        nonlocal runs
        if not runs:
            runs = True
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # as the real one does

    monkeypatch.setattr(resource_tracker, "ensure_running", ensure_running)
    process = FakeProcess()
    _start(process)
    assert process.is_protected
    assert not blocked()
