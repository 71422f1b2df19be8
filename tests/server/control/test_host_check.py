"""The Host header: addresses and known names are allowed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer

Get = Callable[[str, str], tuple[int, str]]


@pytest.fixture(scope="module")
def get() -> Iterator[Get]:
    """Requests a path with a Host header, none if it is empty; returns status and body."""
    state = ControlState(Health(), CollectorRegistry(), "1")
    app = create_app(state, {"localhost", "Infeed.Example.org"})

    def get(path: str, host: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as peer:
            if not host:
                peer._http_vsn_str = "HTTP/1.0"  # type: ignore[attr-defined]
            peer.putrequest("GET", path, skip_host=True)
            if host:
                peer.putheader("host", host)
            peer.endheaders()
            response = peer.getresponse()
            return response.status, response.read().decode()

    with ControlServer(app, "127.0.0.1", 0) as server:
        yield get


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:7471", "127.0.0.1", "10.1.2.3:80", "[::1]:7471", "[::1]", "[2001:db8::1]:80"),
        *("localhost:7471", "LOCALHOST", "infeed.example.org", "infeed.example.org.:7471", ""),
    ],
)
def test_addresses_and_known_names_are_allowed(get: Get, host: str) -> None:
    assert get("/livez", host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example.com:7471", "127.0.0.1.example.com", "example.org", "localhost.evil"),
        *("1.2.3", "localhost:7471:7471", "infeed.example.org@evil", ":7471x", "7471"),
    ],
)
def test_other_names_are_refused_with_the_remedy(get: Get, host: str) -> None:
    for path in ("/metrics", "/livez", "/none"):
        status, body = get(path, host)
        assert status == 421
        assert "--http-host" in json.loads(body)["error"]
