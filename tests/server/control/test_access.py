"""Access to a control plane: host names and tokens, over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from infeed.shared.errors import AuthenticationError, PermissionDeniedError
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    body: str
    challenges: list[str]


Fetch = Callable[..., Answer]

Get = Callable[[str, str], tuple[int, str]]


def authorize(authorization: str | None) -> None:
    if authorization == "Bearer infeed_some":
        raise PermissionDeniedError("it may read some")
    if authorization != "Bearer infeed_all":
        raise AuthenticationError("no token")


@pytest.fixture
def fetch(state: ControlState) -> Iterator[Fetch]:
    """Returns a function that GETs a path, with an Authorization header if one is given."""
    state.health.set("secret-project", False, "no file /data/secret")
    with ControlServer(create_app(state, authorize=authorize), "127.0.0.1", 0) as server:

        def fetch(path: str, authorization: str | None = None) -> Answer:
            headers = {} if authorization is None else {"authorization": authorization}
            with closing(http.client.HTTPConnection(server.address, timeout=60)) as connection:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                challenges = response.headers.get_all("www-authenticate") or []
                return Answer(response.status, response.read().decode(), challenges)

        yield fetch


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'any:{password}'.encode()).decode()}"


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1", "/nowhere", "/livez/"])
def test_a_request_without_a_token_is_refused(fetch: Fetch, path: str) -> None:
    answer = fetch(path)
    assert answer.status == 401
    assert "--token-file FILE" in json.loads(answer.body)["error"]
    assert "Authorization: Bearer TOKEN" in json.loads(answer.body)["error"]
    assert [challenge.split()[0] for challenge in answer.challenges] == ["Basic", "Bearer"]


@pytest.mark.parametrize(
    "header", ["Bearer infeed_all", basic("infeed_all"), "basic Zm86aW5mZWVkX2FsbA=="]
)
def test_a_token_is_accepted_as_bearer_or_password(fetch: Fetch, header: str) -> None:
    assert fetch("/metrics", header).status == 200


@pytest.mark.parametrize(
    "header", ["Bearer other", basic("other"), "Basic !!!", "Basic /w==", "Basic", "Basic YQ=="]
)
def test_other_credentials_are_refused(fetch: Fetch, header: str) -> None:
    answer = fetch("/metrics", header)
    assert (answer.status, json.loads(answer.body)) == (401, {"error": "no token"})


def test_a_token_without_access_to_all_is_refused(fetch: Fetch) -> None:
    answer = fetch("/metrics", "Bearer infeed_some")
    assert (answer.status, json.loads(answer.body)) == (403, {"error": "it may read some"})


def test_probes_need_no_token_and_show_no_reasons(fetch: Fetch) -> None:
    assert json.loads(fetch("/livez").body) == {"status": "ok"}
    answer = fetch("/readyz")
    assert (answer.status, json.loads(answer.body)) == (503, {"ready": False})
    full: Any = json.loads(fetch("/readyz", "Bearer infeed_all").body)
    assert full["pipelines"]["secret-project"]["reason"] == "no file /data/secret"


@pytest.fixture(scope="module")
def get_host() -> Iterator[Get]:
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
def test_addresses_and_known_names_are_allowed(get_host: Get, host: str) -> None:
    assert get_host("/livez", host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example.com:7471", "127.0.0.1.example.com", "example.org", "localhost.evil"),
        *("1.2.3", "localhost:7471:7471", "infeed.example.org@evil", ":7471x", "7471"),
    ],
)
def test_other_names_are_refused_with_the_remedy(get_host: Get, host: str) -> None:
    for path in ("/metrics", "/livez", "/none"):
        status, body = get_host(path, host)
        assert status == 421
        assert "--http-host" in json.loads(body)["error"]
