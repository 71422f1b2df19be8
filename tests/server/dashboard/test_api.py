"""The API that the dashboard reads: bad samples, peers, and docs/api.md about every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from tests.harness.observed import BAD_SAMPLE, observed
from tests.server.dashboard.conftest import PEER, Get, fetch

from infeed.shared.errors import ConfigError, InvalidRequestError, SourceError
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.http_server import ControlServer
from infeed_server.control.metrics import Metrics
from infeed_server.control.peers import parse_peers
from infeed_server.observe.preview import BusyError
from infeed_server.runtime.options import ServerOptions

PAGE = Path(__file__).parents[3] / "docs/api.md"


@pytest.mark.parametrize("name", ["photos", "a/b <b>"])
def test_bad_samples_of_a_pipeline(get: Get, name: str) -> None:
    for quoted in (quote(name), quote(name, safe="")):
        answer = get(f"/api/v1/pipelines/{quoted}/bad-samples")
        assert answer.status == 200
        assert answer.json == {"pipeline": name, "samples": [BAD_SAMPLE]}


def test_bad_samples_of_no_pipeline_name_those_that_there_are(get: Get) -> None:
    answer = get("/api/v1/pipelines/phots/bad-samples")
    assert answer.status == 404
    assert answer.json == {
        "error": "there is no pipeline 'phots'; /api/v1/status has those that there are"
    }


def test_only_the_pages_of_peers_may_read_the_api(get: Get) -> None:
    name = "access-control-allow-origin"
    for path in ("/api/v1/status", "/api/v1", "/api/v1/history"):
        allowed = get(path, Origin=PEER)
        assert allowed.headers[name] == PEER
        assert "origin" in allowed.headers["vary"].lower()
        for origin in ("http://other.example", "null", f"{PEER}.evil.example", PEER.upper()):
            assert name not in get(path, Origin=origin).headers
        assert name not in get(path).headers
    assert name not in get("/metrics", Origin=PEER).headers


def test_peers_are_origins_as_browsers_write_them() -> None:
    given = ["host-b:7471", "http://Host-B:7471/", "https://c:443", "http://[::1]:80"]
    assert parse_peers(given) == ("http://host-b:7471", "https://c", "http://[::1]")


@pytest.mark.parametrize(
    "value",
    [
        "ftp://a:1",
        "http://",
        "http://a:x",
        "http://a:1/path",
        "http://u@a:1",
        "http://a:1?x",
        "http://a;script-src *:1",
        "http://a b:1",
        "http://*:1",
    ],
)
def test_a_peer_that_is_no_origin_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match=r"--http-peer .*http://host-b:7471"):
        parse_peers([value])


def keys(document: Any) -> Iterator[str]:
    """Returns the keys of a JSON document, at any depth."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for value in document:
            yield from keys(value)


@pytest.mark.parametrize(
    "path", ["", "/status", "/history", "/pipelines/photos/bad-samples"], ids=str
)
def test_the_page_of_the_api_names_every_key(get: Get, path: str) -> None:
    document = get(f"/api/v1{path}").json
    document.pop("endpoints", None)
    if path == "/history":
        document["pipelines"] = list(document["pipelines"].values())
    named = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))
    assert set(keys(document)) - named == set()


def test_previews_over_http() -> None:
    class Previews:
        async def make_sample(self, pipeline: str, sample_id: int, key: Any) -> dict[str, Any]:
            return {"pipeline": pipeline, "samples": [sample_id, *key.tolist()]}

        async def make(
            self, pipeline: str, position: int, *, stages: bool = False
        ) -> dict[str, Any]:
            if stages:
                return {"pipeline": pipeline, "file": "\udcff", "samples": []}
            if position == 1:
                raise BusyError
            if position < 0:
                raise InvalidRequestError("position is wrong")
            if position == 2:
                raise SourceError("the file is gone")
            return {"pipeline": pipeline, "samples": [position]}

    state = ControlState(
        Health(),
        Metrics("1.2.3", "2.21.0").registry,
        "1.2.3",
        observer=observed(),
        previews=cast("Any", Previews()),
    )
    with ControlServer(create_app(state), "127.0.0.1", 0) as running:
        path = "/api/v1/pipelines/a%2Fb/preview"
        assert fetch(running.address, path).json == {"pipeline": "a/b", "samples": [0]}
        busy = fetch(running.address, f"{path}?position=1")
        assert (busy.status, busy.headers["retry-after"]) == (429, "2")
        for value, status in (("x", 400), ("-3", 400), ("2", 503), ("9" * 5000, 400)):
            assert fetch(running.address, f"{path}?position={value}").status == status
        # A file's name that is no valid Unicode.
        assert fetch(running.address, f"{path}?stages=1").json["file"] == "\udcff"
        one = fetch(running.address, f"{path}?sample_id=7&key={1:016x}{(1 << 64) - 2:016x}")
        assert one.json["samples"] == [7, 1, -2]
        for query in ("sample_id=x", "sample_id=7&key=1", "stages=yes"):
            assert fetch(running.address, f"{path}?{query}").status == 400
        index = fetch(running.address, "/api/v1").json
        assert "/api/v1/pipelines/NAME/preview" in index["endpoints"]


def test_a_server_without_previews_has_no_such_path(get: Get) -> None:
    assert get("/api/v1/pipelines/photos/preview").status == 404
    assert "/api/v1/pipelines/NAME/preview" not in get("/api/v1").json["endpoints"]


@pytest.mark.parametrize(
    ("options", "has_previews"),
    [
        (ServerOptions(http="127.0.0.1:0"), True),
        (ServerOptions(http="[::1]:0"), True),
        (ServerOptions(http="0.0.0.0:0", insecure=True), False),
        (ServerOptions(http="127.0.0.1:0", tokens="tokens.yaml"), False),
        (ServerOptions(http="127.0.0.1:0", tls_cert="a.pem", tls_client_ca="ca.pem"), False),
        (ServerOptions(http="off"), False),
    ],
    ids=["loopback", "ipv6", "network", "tokens", "client-certificates", "off"],
)
def test_samples_are_shown_to_those_alone_who_may_read_all(
    options: ServerOptions, has_previews: bool
) -> None:
    assert options.has_previews is has_previews


@pytest.mark.parametrize("seconds", ["0", "-1", "600.5", "nan", "inf", "x", ""])
def test_history_of_an_impossible_time_is_refused(get: Get, seconds: str) -> None:
    answer = get(f"/api/v1/history?seconds={seconds}")
    assert answer.status == 400
    assert answer.json["error"].startswith(f"seconds={seconds!r} must be a number above 0")


def test_answers_of_the_api_are_not_kept(get: Get) -> None:
    for path in ("/api/v1/status", "/api/v1/history"):
        assert get(path).headers["cache-control"] == "no-store"
