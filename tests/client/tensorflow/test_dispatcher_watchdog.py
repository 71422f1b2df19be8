"""Log messages about a dispatcher that stops answering, and answers again."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest
import tensorflow as tf
from tests.client.waiting import HANG_SECONDS, Clock

from infeed.shared.errors import ServerUnavailableError
from infeed.tensorflow import dispatcher_watchdog as module
from infeed.tensorflow.dispatcher_watchdog import DispatcherWatchdog, watch


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list whose last item is whether the dispatcher answers."""
    answers = [True]

    class Dispatcher:
        def __init__(self, address: str) -> None:
            assert address == "host:1"

        def get_version(self) -> int:
            if answers[-1]:
                return 1
            raise ServerUnavailableError("no dispatcher")

    monkeypatch.setattr(module, "DispatcherClient", Dispatcher)
    return answers


def test_loss_and_return_are_logged_once(
    answers: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    watchdog = DispatcherWatchdog("host:1", "photos")
    patient = DispatcherWatchdog("host:1", "photos", lost_timeout=1000.0)

    def check_after(seconds: float) -> list[str]:
        """Returns what both log when they check after so many seconds."""
        clock.now += seconds
        caplog.clear()
        watchdog.check()
        patient.check()
        return caplog.messages

    with caplog.at_level(logging.WARNING, "infeed.tensorflow.dispatcher_watchdog"):
        assert check_after(100) == []
        answers.append(False)
        assert check_after(19) == []
        (message,) = check_after(1)
        assert message.startswith("photos: the dispatcher at host:1 has not answered for 20 s")
        assert message.endswith("no dispatcher")
        assert check_after(5) == []
        answers.append(True)
        assert check_after(5) == ["photos: the dispatcher at host:1 answers again, after 30 s"]
        assert check_after(1) == []
        answers.append(False)
        assert check_after(19) == []
        assert len(check_after(1)) == 1


class FakeWatchdog:
    def __init__(self) -> None:
        self.checked = threading.Event()

    def check(self) -> None:
        self.checked.set()


def test_the_thread_ends_when_the_dataset_is_unused() -> None:
    watchdog: Any = FakeWatchdog()
    before = set(threading.enumerate())
    dataset = tf.data.Dataset.range(9)
    watch(dataset, watchdog, interval=0.01)
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    derived = dataset.map(lambda x: x + 1)
    iterator = iter(derived)
    del dataset, derived
    gc.collect()
    next(iterator)
    for _ in range(2):
        watchdog.checked.clear()
        assert watchdog.checked.wait(HANG_SECONDS)
    del iterator
    gc.collect()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
