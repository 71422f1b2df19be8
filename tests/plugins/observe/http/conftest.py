"""Fixtures: a control plane on a free port, and an HTTP client for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.harness.http_get import Get, fetch
from tests.harness.observed import observed

from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer
from infeed_observe.metrics import Metrics
from infeed_server.serving.health import Health


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="0.1.0")


@pytest.fixture
def state(metrics: Metrics) -> ControlState:
    return ControlState(Health(), metrics.registry, "0.1.0")


@pytest.fixture
def server(state: ControlState) -> Iterator[ControlServer]:
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        yield running


@pytest.fixture
def get(server: ControlServer) -> Get:
    """GETs a path; also returns responses with an error status."""
    return partial(fetch, server.address)


@pytest.fixture(scope="module")
def browse() -> Iterator[Get]:
    """GETs a path of a server with a status and the pipelines `photos` and `a/b <b>`."""
    status = observed("photos", "a/b <b>")
    state = ControlState(Health(), status.metrics.registry, "1.2.3", status=status)
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        yield partial(fetch, running.address)
