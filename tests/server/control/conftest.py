"""A control plane on a free port, and a plain HTTP client for it."""

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
from infeed_server.control.metrics import Metrics
from infeed_server.control.server import ControlServer


@dataclass(frozen=True)
class Answer:
    """What an HTTP server answered."""

    status: int
    content_type: str
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Get = Callable[..., Answer]


@pytest.fixture
def state() -> ControlState:
    return ControlState(Health(), Metrics("0.1.0", "2.21.0"), "0.1.0")


@pytest.fixture
def server(state: ControlState) -> Iterator[ControlServer]:
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        yield running


@pytest.fixture
def get(server: ControlServer) -> Get:
    """GETs a path from the running server; an error status is an answer too."""

    def ask(path: str, **headers: str) -> Answer:
        request = urllib.request.Request(f"http://{server.address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return _answer(response)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error)

    return ask


def _answer(response: Any) -> Answer:
    return Answer(response.status, response.headers["Content-Type"], response.read().decode())
