"""Errors of `distribute`: options, and servers, dispatchers and workers out of reach."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.client.waiting import HANG_SECONDS, AheadClock
from tests.plugins.service.trainer.service import FakeServer, address_of

import infeed
from infeed.rpc import channel
from infeed.shared.errors import (
    ConfigError,
    InvalidRequestError,
    PipelineNotFoundError,
    ServerUnavailableError,
)
from infeed.testing import FakeTransport
from infeed.v1 import cluster_pb2 as messages
from infeed_service.rpc import STATIC_SHARDING, DispatcherClient, register_mark
from infeed_service.trainer import preflight

SERVICE = tf.data.experimental.service


def distribute(server: Any, **options: Any) -> tf.data.Dataset:
    return infeed.tensorflow.distribute(
        "fake", "fake", transport=server, **{"timeout": HANG_SECONDS} | options
    )


@pytest.fixture
def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pauses between attempts end at once."""
    clock = AheadClock()
    monkeypatch.setattr(preflight, "time", clock)
    monkeypatch.setattr(channel, "time", clock)


COORDINATED = {"num_consumers": 2, "consumer_index": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processing_mode": "static"}, 'must be "off" or "dynamic" or .*, not \'static\''),
        ({"compression": "zip"}, "compression must be .*, not 'zip'"),
        ({"max_outstanding_requests": 0}, "from 1 to .*, not 0"),
        ({"num_consumers": 2}, "must be given together"),
        ({"consumer_index": 0}, "must be given together"),
        ({**COORDINATED, "consumer_index": 2, "job_name": "j"}, "not 2 and 2"),
        (
            {"num_consumers": 0, "consumer_index": 0, "job_name": "j"},
            "num_consumers must be from 1 to .*, not 0",
        ),
        (COORDINATED, "num_consumers: .* need a job_name"),
        ({**COORDINATED, "job_name": "j", "epochs": 1}, "leave out epochs"),
        (
            {**COORDINATED, "job_name": "j", "cross_trainer_cache": "a"},
            "num_consumers and cross_trainer_cache: .* exclude each other",
        ),
        ({"cross_trainer_cache": "a"}, "cross_trainer_cache: .* need a job_name"),
        ({"cross_trainer_cache": "", "job_name": "j"}, "trainer_cache must be a nonempty str"),
        ({"job_name": ""}, "job_name must be a nonempty str"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"epochs": 0}, "epochs must be"),
        ({"seed": -1}, "seed must be"),
        ({"remainder": "keep"}, "remainder must be"),
        ({"token": "secret"}, "cannot be combined with transport"),
    ],
    ids=str,
)
def test_an_invalid_option_raises_without_a_server(options: Any, message: str) -> None:
    server = FakeTransport({"x": np.zeros(4)})  # cannot register a dataset
    with pytest.raises(InvalidRequestError, match=message):
        distribute(server, **options)


def test_errors_of_the_server_are_raised(server: Any) -> None:
    with pytest.raises(InvalidRequestError, match="does not answer RegisterDataset"):
        distribute(FakeTransport({"x": np.zeros(4)}))
    with pytest.raises(PipelineNotFoundError, match="known: fake"):
        infeed.tensorflow.distribute("fake", "photos", transport=server)


def test_another_version_of_tensorflow_raises(server: Any) -> None:
    server.version = "2.99.1"
    message = rf"has TensorFlow {tf.__version__} and the infeed server at fake has 2\.99"
    with pytest.raises(ConfigError, match=message):
        distribute(server)
    server.version = tf.__version__.rpartition(".")[0] + ".99"
    distribute(server)


# --- dispatcher and workers ---


class RedirectingServer:
    """Registers a dataset as `server` does, but returns another dispatcher's address."""

    def __init__(self, server: Any, address: str) -> None:
        self._server, self._address = server, address
        self.target = "fake"
        self.get_pipeline = server.get_pipeline

    def call(self, *args: Any) -> Any:
        registered = self._server.call(*args)
        registered.dispatcher_address = self._address
        return registered


@pytest.fixture
def other_dispatcher() -> Iterator[Any]:
    """A dispatcher without workers."""
    server = SERVICE.DispatchServer()
    yield server
    server._stop()


def test_an_unreachable_dispatcher_raises(
    server: Any, new_address: Callable[[], str], skip_pauses: None
) -> None:
    address = new_address()
    message = f"{address}: .*; the infeed server can reach it"
    with pytest.raises(ServerUnavailableError, match=message):
        distribute(RedirectingServer(server, address), timeout=5)


def test_another_dispatcher_raises(server: Any, other_dispatcher: Any, start_worker: Any) -> None:
    start_worker(other_dispatcher)
    with pytest.raises(ConfigError, match="does not know the dataset of pipeline 'fake'"):
        distribute(RedirectingServer(server, address_of(other_dispatcher)))


def test_a_dispatcher_without_workers_raises(
    rows: Any, other_dispatcher: Any, skip_pauses: None
) -> None:
    server = FakeServer(address_of(other_dispatcher), rows)
    with pytest.raises(ServerUnavailableError, match="has no workers; start some with: infeed"):
        distribute(server, timeout=5)


def test_unreachable_workers_raise_or_are_logged(
    rows: Any,
    other_dispatcher: Any,
    start_worker: Any,
    new_address: Callable[[], str],
    skip_pauses: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = FakeServer(address_of(other_dispatcher), rows)
    timeout = {"timeout": 5}
    wrong = new_address()
    start_worker(other_dispatcher, wrong)
    message = rf"1 of the 1 workers .*: {wrong}: .*`infeed worker --advertise` sets a worker's"
    with pytest.raises(ServerUnavailableError, match=message):
        distribute(server, **timeout)
    start_worker(other_dispatcher)
    for options in ({"epochs": 1}, {**COORDINATED, "job_name": "rounds"}):
        with pytest.raises(ServerUnavailableError, match=rf"1 of the 2 workers .*: {wrong}: "):
            distribute(server, **options, **timeout)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "infeed_service.trainer.preflight"):
        assert len(list(distribute(server, **timeout).take(3))) == 3
    assert f"{wrong}: " in caplog.text
    assert "from the others" in caplog.text


def test_a_static_policy_without_a_list_of_workers_raises(
    rows: Any, other_dispatcher: Any, start_worker: Any
) -> None:
    worker = start_worker(other_dispatcher)._address
    dispatcher = address_of(other_dispatcher)
    server = FakeServer(dispatcher, rows)
    for mode in ("file", "data", "file_or_data", "hint"):
        message = f"processing_mode {mode} gives each worker .* a list of"
        with pytest.raises(ConfigError, match=message):
            distribute(server, processing_mode=mode)
    # The dispatcher could not list the tasks of a worker that returns if one were of such a job.
    DispatcherClient(dispatcher).call(
        "WorkerHeartbeat",
        messages.WorkerHeartbeat(worker_address=worker),
        messages.WorkerHeartbeatAnswer,
    )
    register_mark(dispatcher, STATIC_SHARDING)
    distribute(server, processing_mode="data")


# --- the dataset ---


def test_missing_or_ambiguous_fields_raise(make_server: Any, rows: Any) -> None:
    server = make_server(rows, indexed=False)
    distribute(server)
    with pytest.raises(InvalidRequestError, match="have no ids, because"):
        distribute(server, sample_ids=True)
    with pytest.raises(InvalidRequestError, match="already have a field 'sample_ids'"):
        distribute(make_server({"x": np.zeros(9), "sample_ids": np.zeros(9)}), sample_ids=True)
    with pytest.raises(InvalidRequestError, match="label=None"):
        distribute(make_server({"label": np.zeros(9)}))
