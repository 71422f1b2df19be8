"""Tests of `PeriodicTask`."""

from __future__ import annotations

import threading

import pytest

from infeed_server.processes.periodic import PeriodicTask


def test_exception_is_logged_and_calls_continue(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0
    third = threading.Event()

    def function() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            third.set()
        if calls == 1:
            raise ValueError("the first call")

    task = PeriodicTask("counting", 0.001, function)
    with task:
        assert third.wait(100)
    calls_at_stop = calls
    assert "infeed-counting failed" in caplog.text
    assert "ValueError: the first call" in caplog.text
    task.stop()
    assert calls == calls_at_stop


def test_stop_before_start_does_nothing() -> None:
    PeriodicTask("unused", 1, lambda: None).stop()
