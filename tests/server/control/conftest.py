"""Fixtures: a control plane on a free port, and an HTTP client for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.harness.http_get import Get, fetch

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer
from infeed_server.observe.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("0.1.0", "2.21.0")


@pytest.fixture
def state(metrics: Metrics) -> ControlState:
    return ControlState(Health(), metrics.registry, "0.1.0")


@pytest.fixture
def server(state: ControlState) -> Iterator[ControlServer]:
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        yield running


@pytest.fixture
def get(server: ControlServer) -> Get:
    """GETs a path; returns responses with an error status too."""
    return partial(fetch, server.address)
