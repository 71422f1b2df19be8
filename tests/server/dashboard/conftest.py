"""Fixtures: the control plane of an observed server, and an HTTP client for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.harness.http_get import Get, fetch
from tests.harness.observed import observed

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer
from infeed_server.observe.metrics import Metrics


@pytest.fixture
def get() -> Iterator[Get]:
    """GETs a path of a control plane with the pipelines `photos` and `a/b <b>`."""
    registry = Metrics("1.2.3", "2.21.0").registry
    state = ControlState(Health(), registry, "1.2.3", status=observed("photos", "a/b <b>").status)
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        yield partial(fetch, running.address)
