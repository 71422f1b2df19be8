"""The endpoints, over real HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import Health
from infeed_server.control.metrics import Metrics
from infeed_server.control.server import ControlServer

Get = Callable[..., Any]


def test_livez_answers_while_nothing_is_ready(get: Get):
    answer = get("/livez")
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json == {"status": "ok"}


def test_readyz_tells_which_pipeline_is_not_ready_and_why(state: ControlState, get: Get):
    assert get("/readyz").status == 503
    state.health.set("train", True, "first batch made")
    state.health.set("eval", False, "building the record index")
    answer = get("/readyz")
    assert answer.status == 503
    assert answer.json == {
        "ready": False,
        "reason": "1 of 2 not ready: eval: building the record index",
        "pipelines": {
            "eval": {"ready": False, "reason": "building the record index"},
            "train": {"ready": True, "reason": "first batch made"},
        },
    }
    state.health.set("eval", True, "first batch made")
    answer = get("/readyz")
    assert answer.status == 200
    assert answer.json["ready"] is True
    state.health.drain()
    assert get("/readyz").status == 503
    assert get("/livez").status == 200


def test_readyz_calls_the_parts_what_they_are():
    health = Health()
    health.set("a", True, "fine")
    app = create_app(ControlState(health, Metrics("1", "2"), "1", parts="workers"))
    with (
        ControlServer(app, "127.0.0.1", 0) as server,
        urllib.request.urlopen(f"http://{server.address}/readyz", timeout=60) as answer,
    ):
        told = json.load(answer)
    assert told["workers"] == {"a": {"ready": True, "reason": "fine"}}
    assert "pipelines" not in told


def test_metrics_are_prometheus_text(state: ControlState, get: Get):
    state.metrics.batch_sent("train", 64, 9_633_792)
    answer = get("/metrics")
    assert answer.status == 200
    assert answer.content_type.startswith("text/plain; version=")
    assert answer.content_type.count("charset=utf-8") == 1
    assert 'infeed_samples_total{pipeline="train"} 64.0\n' in answer.body


def test_metrics_come_as_openmetrics_when_asked(get: Get):
    answer = get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.body.endswith("# EOF\n")


def test_the_index_names_the_endpoints(get: Get):
    assert sorted(get("/").json["endpoints"]) == ["/livez", "/metrics", "/readyz"]


def test_an_unknown_path_is_told_what_there_is(get: Get):
    answer = get("/health")
    assert answer.status == 404
    assert answer.json == {"error": "no /health; there is: /, /livez, /readyz, /metrics"}
