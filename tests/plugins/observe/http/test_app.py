"""Tests of `http/app.py`, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from tests.harness.http_get import Get, fetch

from infeed_observe.http.app import ControlState, create_app
from infeed_observe.http.server import ControlServer
from infeed_observe.metrics import Metrics
from infeed_server.serving.health import Health


def test_readyz_has_the_reason_of_each_pipeline(state: ControlState, get: Get):
    assert get("/readyz").status == 503
    state.health.set("train", True, "first batch made")
    state.health.set("eval", False, "building the record index")
    response = get("/readyz")
    assert response.status == 503
    assert response.json == {
        "ready": False,
        "reason": "1 of 2 not ready: eval: building the record index",
        "pipelines": {
            "eval": {"ready": False, "reason": "building the record index"},
            "train": {"ready": True, "reason": "first batch made"},
        },
    }
    state.health.set("eval", True, "first batch made")
    response = get("/readyz")
    assert response.status == 200
    assert response.json["ready"] is True
    state.health.drain()
    assert get("/readyz").status == 503
    alive = get("/livez")
    assert (alive.status, alive.content_type) == (200, "application/json")
    assert alive.json == {"status": "ok"}


def test_readyz_has_the_key_of_its_parts():
    health = Health()
    health.set("a", True, "fine")
    app = create_app(ControlState(health, Metrics().registry, "1", parts="workers"))
    with ControlServer(app, "127.0.0.1", 0) as server:
        body = fetch(server.address, "/readyz").json
    assert body["workers"] == {"a": {"ready": True, "reason": "fine"}}
    assert "pipelines" not in body


def test_metrics_are_prometheus_text_or_openmetrics(metrics: Metrics, get: Get):
    metrics.count("infeed_samples", "train", amount=64)
    response = get("/metrics")
    assert response.content_type.startswith("text/plain; version=")
    assert response.content_type.count("charset=utf-8") == 1
    assert 'infeed_samples_total{pipeline="train"} 64.0\n' in response.body
    response = get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert response.content_type.startswith("application/openmetrics-text")
    assert response.body.endswith("# EOF\n")


def test_other_methods_are_refused_with_json(server: ControlServer):
    request = urllib.request.Request(f"http://{server.address}/livez", method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with caught.value as error:
        assert error.code == 405
        assert set(error.headers["allow"].split(", ")) == {"GET", "HEAD"}
        assert json.load(error)["error"].startswith("POST /livez: this server is read-only")


def test_index_and_an_unknown_path_list_the_available_ones(get: Get):
    assert sorted(get("/").json["endpoints"]) == ["/livez", "/metrics", "/readyz"]
    response = get("/health")
    assert response.status == 404
    assert response.json == {"error": "no /health; available: /, /livez, /readyz, /metrics"}
