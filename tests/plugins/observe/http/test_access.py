"""Access to a control plane: host names and tokens, over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import product
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.harness.http_get import Get, fetch

from infeed.shared.errors import AuthenticationError, PermissionDeniedError
from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer
from infeed_server.serving.health import Health

GetHost = Callable[[str, str], tuple[int, str]]


def authorize(authorization: str | None) -> None:
    if authorization == "Bearer infeed_some":
        raise PermissionDeniedError("it may read some")
    if authorization != "Bearer infeed_all":
        raise AuthenticationError("no token")


@pytest.fixture
def get(state: ControlState) -> Iterator[Get]:
    """GETs a path of a control plane that requires a token."""
    state.health.set("secret-project", False, "no file /data/secret")
    with ControlServer(create_app(state, authorize=authorize), "127.0.0.1", 0) as server:
        yield partial(fetch, server.address)


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'any:{password}'.encode()).decode()}"


def test_a_request_without_a_token_is_refused(get: Get) -> None:
    for path in ("/", "/metrics", "/api/v1", "/nowhere", "/livez/"):
        answer = get(path)
        assert answer.status == 401
        assert "--token-file FILE" in answer.json["error"]
        assert "Authorization: Bearer TOKEN" in answer.json["error"]
        challenges = answer.headers.get_all("www-authenticate") or []
        assert [challenge.split()[0] for challenge in challenges] == ["Basic", "Bearer"]


@pytest.mark.parametrize(
    ("header", "status", "problem"),
    [
        *((header, 200, None) for header in ("Bearer infeed_all", basic("infeed_all"))),
        ("basic Zm86aW5mZWVkX2FsbA==", 200, None),
        *((header, 401, "no token") for header in ("Bearer other", basic("other"), "Basic !!!")),
        *((header, 401, "no token") for header in ("Basic /w==", "Basic", "Basic YQ==")),
        ("Bearer infeed_some", 403, "it may read some"),
    ],
)
def test_a_token_is_bearer_or_password(
    get: Get, header: str, status: int, problem: str | None
) -> None:
    answer = get("/metrics", authorization=header)
    assert answer.status == status
    assert problem is None or answer.json == {"error": problem}


def test_probes_need_no_token_and_show_no_reasons(get: Get) -> None:
    assert get("/livez").json == {"status": "ok"}
    answer = get("/readyz")
    assert (answer.status, answer.json) == (503, {"ready": False})
    full: Any = get("/readyz", authorization="Bearer infeed_all").json
    assert full["pipelines"]["secret-project"]["reason"] == "no file /data/secret"


@pytest.fixture(scope="module")
def get_host() -> Iterator[GetHost]:
    """Requests a path with a Host header, unless it is empty; returns status and body."""
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


def test_addresses_and_known_names_are_allowed(get_host: GetHost) -> None:
    for host in (
        *("127.0.0.1:7471", "127.0.0.1", "10.1.2.3:80", "[::1]:7471", "[::1]", "[2001:db8::1]:80"),
        *("localhost:7471", "LOCALHOST", "infeed.example.org", "infeed.example.org.:7471", ""),
    ):
        assert get_host("/livez", host)[0] == 200, host


def test_other_names_are_refused_with_the_remedy(get_host: GetHost) -> None:
    for host, path in product(
        (
            *("rebound.example.com:7471", "127.0.0.1.example.com", "example.org"),
            *("localhost.evil", "1.2.3", "localhost:7471:7471", "infeed.example.org@evil"),
            *(":7471x", "7471"),
        ),
        ("/metrics", "/livez", "/none"),
    ):
        status, body = get_host(path, host)
        assert status == 421, host
        assert "--http-host" in json.loads(body)["error"]
