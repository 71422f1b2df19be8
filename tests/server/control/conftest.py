"""Fixtures: a control plane on a free port, and an HTTP client for it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer
from infeed_server.observe.metrics import Metrics


@dataclass(frozen=True)
class HttpResponse:
    """The response of an HTTP server."""

    status: int
    content_type: str
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Get = Callable[..., HttpResponse]


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
    """Returns a function that GETs a path; it returns responses with an error status too."""

    def request_path(path: str, **headers: str) -> HttpResponse:
        request = urllib.request.Request(f"http://{server.address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return _read_response(response)
        except urllib.error.HTTPError as error:
            with error:
                return _read_response(error)

    return request_path


def _read_response(response: Any) -> HttpResponse:
    return HttpResponse(response.status, response.headers["Content-Type"], response.read().decode())
