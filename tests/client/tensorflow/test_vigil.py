"""A dispatcher that is lost, and comes back, is said in the log."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest
import tensorflow as tf
from tests.client.waiting import HANG_SECONDS, Clock

from infeed.errors import ServerUnavailableError
from infeed.tensorflow import vigil as module
from infeed.tensorflow.vigil import Vigil, watch


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a dispatcher answers, in the last entry."""
    told = [True]

    class Dispatcher:
        def __init__(self, address: str) -> None:
            assert address == "host:1"

        def version(self) -> int:
            if told[-1]:
                return 1
            raise ServerUnavailableError("no dispatcher")

    monkeypatch.setattr(module, "Dispatcher", Dispatcher)
    return told


def test_a_lost_dispatcher_is_told_once_and_so_is_its_return(
    answers: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    vigil = Vigil("host:1", "photos")
    patient = Vigil("host:1", "photos", lost_seconds=1000.0)

    def look(seconds: float) -> list[str]:
        """What is said when both look after so many seconds."""
        clock.now += seconds
        caplog.clear()
        vigil.look()
        patient.look()
        return caplog.messages

    with caplog.at_level(logging.WARNING, "infeed.tensorflow.vigil"):
        assert look(100) == []
        answers.append(False)
        assert look(19) == []
        (said,) = look(1)
        assert said.startswith("photos: the dispatcher at host:1 has not answered for 20 s")
        assert said.endswith("no dispatcher")
        assert look(5) == []
        answers.append(True)
        assert look(5) == ["photos: the dispatcher at host:1 answers again, after 30 s"]
        assert look(1) == []
        answers.append(False)
        assert look(19) == []
        assert len(look(1)) == 1


class Counter:
    """Counts the looks, and lets wait for the next."""

    def __init__(self) -> None:
        self.looked = threading.Event()

    def look(self) -> None:
        self.looked.set()


def test_it_lasts_as_long_as_somebody_reads() -> None:
    counter: Any = Counter()
    before = set(threading.enumerate())
    dataset = tf.data.Dataset.range(9)
    watch(dataset, counter, every=0.01)
    (keeper,) = set(threading.enumerate()) - before
    assert keeper.daemon
    derived = dataset.map(lambda x: x + 1)
    iterator = iter(derived)
    del dataset, derived
    gc.collect()
    next(iterator)
    for _ in range(2):
        counter.looked.clear()
        assert counter.looked.wait(HANG_SECONDS)
    del iterator
    gc.collect()
    keeper.join(HANG_SECONDS)
    assert not keeper.is_alive()
