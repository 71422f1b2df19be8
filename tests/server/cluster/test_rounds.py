"""What is looked at again and again."""

from __future__ import annotations

import threading

import pytest

from infeed_server.cluster.rounds import Rounds


class Counting(Rounds):
    def __init__(self) -> None:
        super().__init__("counting", 0.001)
        self.looks = 0
        self.third = threading.Event()

    def look(self) -> None:
        self.looks += 1
        if self.looks == 3:
            self.third.set()
        if self.looks == 1:
            raise ValueError("the first time")


def test_a_failure_is_told_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    counting = Counting()
    with counting:
        assert counting.third.wait(100)
    looks = counting.looks
    assert "infeed-counting failed" in caplog.text
    assert "ValueError: the first time" in caplog.text
    counting.stop()
    assert counting.looks == looks


def test_it_may_be_stopped_before_it_starts() -> None:
    Counting().stop()
