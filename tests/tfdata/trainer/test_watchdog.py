"""Log messages about a dispatcher that stops answering, and answers again."""

from __future__ import annotations

import gc
import threading

import pytest
import tensorflow as tf
from tests.client.waiting import HANG_SECONDS, until

from infeed.shared.errors import ServerUnavailableError
from infeed_tfdata.trainer import watchdog


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

    monkeypatch.setattr(watchdog, "DispatcherClient", Dispatcher)
    monkeypatch.setattr(watchdog, "CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "LOST_TIMEOUT_SECONDS", 0.05)
    return answers


def test_loss_and_return_are_logged_until_the_dataset_is_unused(
    answers: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    dataset = tf.data.Dataset.range(9)
    watchdog.watch(dataset, "host:1", "photos")
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    iterator = iter(dataset.map(lambda x: x + 1))
    del dataset
    gc.collect()
    answers.append(False)
    until(lambda: "photos: the dispatcher at host:1 has not answered for" in caplog.text)
    answers.append(True)
    until(lambda: "photos: the dispatcher at host:1 answers again" in caplog.text)
    assert len(caplog.records) == 2
    next(iterator)
    del iterator
    gc.collect()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
