"""A dispatcher that is lost, and comes back, is said in the log."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest
import tensorflow as tf

from infeed.tensorflow.vigil import Vigil, watch

SERVICE = tf.data.experimental.service


def test_a_lost_dispatcher_is_told_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = SERVICE.DispatchServer()
    address = server.target.partition("//")[2]
    port = int(address.rpartition(":")[2])
    vigil = Vigil(address, "photos", lost_seconds=0.0)
    patient = Vigil(address, "photos", lost_seconds=1000.0)
    with caplog.at_level(logging.WARNING, "infeed.tensorflow.vigil"):
        vigil.look()
        assert not caplog.records
        server._stop()
        for _ in range(3):
            vigil.look()
            patient.look()
        (said,) = caplog.messages
        assert said.startswith(f"photos: the dispatcher at {address} has not answered for 0 s")
        server = SERVICE.DispatchServer(SERVICE.DispatcherConfig(port=port))
        for _ in range(2):
            vigil.look()
            patient.look()
        _, said = caplog.messages
        assert said == f"photos: the dispatcher at {address} answers again, after 0 s"
        server._stop()
        vigil.look()
        assert len(caplog.messages) == 3


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
        assert counter.looked.wait(20)
    del iterator
    gc.collect()
    keeper.join(20)
    assert not keeper.is_alive()
