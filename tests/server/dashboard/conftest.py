"""Fixtures: the control plane of an observed server, and an HTTP client for it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.harness.observed import observed

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer
from infeed_server.observe.metrics import Metrics


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Get = Callable[..., Answer]


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a control plane with the pipelines `photos` and `a/b <b>`."""
    registry = Metrics("1.2.3", "2.21.0").registry
    state = ControlState(Health(), registry, "1.2.3", status=observed("photos", "a/b <b>").status)
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        yield running.address


@pytest.fixture
def get(address: str) -> Get:
    """Returns a function that GETs a path."""

    def request_path(path: str, **headers: str) -> Answer:
        return fetch(address, path, **headers)

    return request_path


def fetch(address: str, path: str, **headers: str) -> Answer:
    """Returns the answer to a GET, whatever its status."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode())
    finally:
        connection.close()
