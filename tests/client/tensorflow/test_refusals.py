"""What `distribute` refuses: at once, or after the seconds that it was given, and why."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.client.tensorflow.service import FakeServer, address
from tests.client.waiting import HANG_SECONDS, AheadClock

import infeed
from infeed import transport
from infeed.errors import (
    ConfigError,
    InvalidRequestError,
    PipelineNotFoundError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.inquiry import Dispatcher
from infeed.spec import FieldSpec
from infeed.tensorflow import cluster
from infeed.testing import FakeTransport

SERVICE = tf.data.experimental.service


def distribute(server: Any, **options: Any) -> tf.data.Dataset:
    return infeed.tensorflow.distribute(
        "fake", "fake", transport=server, **{"timeout": HANG_SECONDS} | options
    )


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the seconds between two attempts pass at once."""
    clock = AheadClock()
    monkeypatch.setattr(cluster, "time", clock)
    monkeypatch.setattr(transport, "time", clock)


COORDINATED = {"num_consumers": 2, "consumer_index": 0}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"processing_mode": "static"}, "one of off, dynamic, file, data, file_or_data, hint, not"),
        ({"target_workers": "remote"}, "one of auto, any, local, not 'remote'"),
        ({"compression": "zip"}, "one of none, snappy, auto, not 'zip'"),
        ({"max_outstanding_requests": 0}, "at least 1, not 0"),
        ({"num_consumers": 2}, "give both or none"),
        ({"consumer_index": 0}, "give both or none"),
        ({**COORDINATED, "consumer_index": 2, "job_name": "j"}, "not 2 of 2"),
        ({**COORDINATED, "consumer_index": -1, "job_name": "j"}, "not -1 of 2"),
        ({"num_consumers": 0, "consumer_index": 0, "job_name": "j"}, "not 0 of 0"),
        (COORDINATED, "num_consumers needs a job_name, the same for all"),
        ({**COORDINATED, "job_name": "j", "epochs": 1}, "leave out epochs=1"),
        ({**COORDINATED, "job_name": "j", "target_workers": "local"}, "cannot be local"),
        ({**COORDINATED, "job_name": "j", "cross_trainer_cache": "a"}, "no cross-trainer cache"),
        ({"cross_trainer_cache": "a"}, "cross_trainer_cache needs a job_name"),
        ({"cross_trainer_cache": "a", "job_name": "j", "epochs": 2}, "leave out epochs=2"),
        ({"cross_trainer_cache": "", "job_name": "j"}, "name of this trainer"),
        ({"job_name": ""}, "job_name must have from 1 to"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"epochs": 0}, "epochs must be"),
        ({"seed": -1}, "seed must be"),
        ({"remainder": "keep"}, "remainder must be"),
        ({"token": "secret"}, "are the transport's"),
    ],
    ids=str,
)
def test_options_that_nobody_need_be_asked_about(options: Any, told: str) -> None:
    server = FakeTransport({"x": np.zeros(4)})  # that refuses to register anything
    with pytest.raises(InvalidRequestError, match=told):
        distribute(server, **options)


def test_the_servers_refusals_pass_through(server: Any) -> None:
    with pytest.raises(InvalidRequestError, match="'fake' is no data set of TensorFlow's data"):
        distribute(FakeTransport({"x": np.zeros(4)}))
    with pytest.raises(PipelineNotFoundError, match="known: fake"):
        infeed.tensorflow.distribute("fake", "photos", transport=server)


def test_nobody_at_the_target(no_pauses: None) -> None:
    with pytest.raises(ServerUnavailableError, match="no infeed server answered"):
        infeed.tensorflow.distribute(nobody(), "fake", timeout=5)


def test_another_tensorflow(server: Any) -> None:
    server.version = "2.99.1"
    told = rf"this process has TensorFlow {tf.__version__}, and the infeed server at fake has 2\.99"
    with pytest.raises(ConfigError, match=told):
        distribute(server)
    server.version = tf.__version__.rpartition(".")[0] + ".99"
    distribute(server)


# --- the cluster ---


class Elsewhere:
    """A server that registers as another does, and then tells another address."""

    def __init__(self, server: Any, told: str) -> None:
        self._fake, self._told = server, told
        self.target = "fake"
        self.get_pipeline = server.get_pipeline

    def register_dataset(self, *args: Any) -> Any:
        registered = self._fake.register_dataset(*args)
        return dataclasses.replace(registered, dispatcher_address=self._told)


@pytest.fixture
def other() -> Iterator[Any]:
    """A dispatcher without workers."""
    server = SERVICE.DispatchServer()
    yield server
    server._stop()


def nobody() -> str:
    """An address where nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_dispatcher_that_is_not_there(server: Any, no_pauses: None) -> None:
    gone = nobody()
    told = f"no dispatcher .* answers at {gone}: .*; the infeed server at fake says that it is"
    with pytest.raises(ServerUnavailableError, match=told):
        distribute(Elsewhere(server, gone), timeout=5)


def test_a_dispatcher_that_is_none(server: Any, dispatcher: str) -> None:
    (worker, _) = Dispatcher(dispatcher).workers()
    with pytest.raises(ProtocolError, match="is no dispatcher"):
        distribute(Elsewhere(server, worker))


def test_a_dispatcher_that_is_another(server: Any, other: Any, start_worker: Any) -> None:
    start_worker(other)
    with pytest.raises(ConfigError, match="does not know the data set of pipeline 'fake'"):
        distribute(Elsewhere(server, address(other)))


def test_no_workers(rows: Any, other: Any, no_pauses: None) -> None:
    server = FakeServer(address(other), rows)
    with pytest.raises(ServerUnavailableError, match="knows no worker; start some with: infeed"):
        distribute(server, timeout=5)


def test_workers_that_nobody_can_reach(
    rows: Any,
    other: Any,
    start_worker: Any,
    no_pauses: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = FakeServer(address(other), rows)
    patience = {"timeout": 5}
    wrong = nobody()
    start_worker(other, wrong)
    told = rf"1 of the 1 workers .*: {wrong}: .*`infeed worker --advertise` sets the address"
    with pytest.raises(ServerUnavailableError, match=told):
        distribute(server, **patience)
    start_worker(other)
    for options in ({"epochs": 1}, {**COORDINATED, "job_name": "rounds"}):
        with pytest.raises(ServerUnavailableError, match=rf"1 of the 2 workers .*: {wrong}: "):
            distribute(server, **options, **patience)
    distribute(server, epochs=1, target_workers="local", **patience)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "infeed.tensorflow.cluster"):
        assert len(list(distribute(server, **patience).take(3))) == 3
    assert f"{wrong}: " in caplog.text
    assert "from the others" in caplog.text


@pytest.mark.parametrize("mode", ["file", "data", "file_or_data", "hint"])
def test_policies_that_need_a_list_of_workers(
    rows: Any, other: Any, start_worker: Any, mode: str
) -> None:
    start_worker(other)
    server = FakeServer(address(other), rows)
    with pytest.raises(ConfigError, match=f"processing_mode {mode} gives each worker .* the list"):
        distribute(server, processing_mode=mode)


# --- the data set ---


def test_an_index_that_is_not_there(make: Any, rows: Any) -> None:
    server = make(rows, indexed=False)
    distribute(server)
    with pytest.raises(InvalidRequestError, match="have no numbers: its source is a data set"):
        distribute(server, sample_ids=True)
    with pytest.raises(InvalidRequestError, match="has a field 'sample_ids' of its own"):
        distribute(make({"x": np.zeros(9), "sample_ids": np.zeros(9)}), sample_ids=True)
    with pytest.raises(InvalidRequestError, match="label=None"):
        distribute(make({"label": np.zeros(9)}))


@pytest.mark.parametrize(
    ("described", "told"),
    [
        ([("image", "float32", (3, 4)), ("label", "int64", ())], r"image is uint8\(5, 3, 4\), not"),
        ([("image", "uint8", (3, 4))], r"label is int64\(5,\), not missing"),
        (
            [("image", "uint8", (3, 4)), ("label", "int64", ()), ("z", "bool", ())],
            r"z is missing, not bool\(5,\)",
        ),
    ],
)
def test_a_data_set_that_is_another(server: Any, described: Any, told: str) -> None:
    fields = tuple(FieldSpec(*field) for field in described)
    told = rf"'fake' at the dispatcher .* is not what the infeed server describes: {told}"
    real = server.spec
    other = dataclasses.replace(real, wire_spec=fields)
    server.get_pipeline = lambda *_: other
    with pytest.raises(ProtocolError, match=told):
        distribute(server)


@pytest.mark.parametrize(
    ("element", "told"),
    [
        (lambda fields, about: fields, "no pairs of fields"),
        (lambda fields, about: (fields, about["mask"]), "where a dict of epoch, mask"),
        (lambda fields, about: (fields, {"mask": about["mask"]}), "epoch is missing"),
        (
            lambda fields, about: (fields, {k: v for k, v in about.items() if k != "start"}),
            "start is missing",
        ),
    ],
)
def test_elements_that_are_no_pairs(server: Any, element: Any, told: str) -> None:
    made = server.element
    server.element = lambda *args: element(*made(*args))
    with pytest.raises(ProtocolError, match=told):
        distribute(server)
