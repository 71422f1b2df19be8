"""Tests of `control/health.py`."""

from __future__ import annotations

import logging

import pytest

from infeed_server.serving.health import Health, Readiness


def test_server_without_pipelines_is_not_ready():
    health = Health()
    assert not health.overall.ready
    assert health.overall.reason == "no pipeline is loaded yet"
    assert health.parts == {}


def test_ready_when_every_pipeline_is():
    health = Health()
    health.set("train", True, "first batch made")
    health.set("eval", False, "building the record index")
    assert not health.overall.ready
    assert health.overall.reason == "1 of 2 not ready: eval: building the record index"
    health.set("eval", True, "first batch made")
    assert health.overall.ready
    assert list(health.parts) == ["eval", "train"]


def test_policy_any_needs_one_ready_pipeline():
    health = Health("any")
    health.set("train", False, "its first batch fails")
    assert not health.overall.ready
    health.set("eval", True, "its first batch is ready")
    assert health.overall == Readiness(True, "1 of 2 not ready: train: its first batch fails")
    health.set("eval", False, "the disk is gone")
    assert not health.overall.ready


def test_a_server_is_ready_without_a_pipeline_that_it_goes_without():
    health = Health()
    health.go_without("broken", "it cannot be opened: no file")
    assert not health.overall.ready
    health.set("train", True, "its first batch is ready")
    assert health.overall == Readiness(True, "1 of 2 pipelines ready; 1 broken")
    assert health.parts["broken"] == Readiness(False, "it cannot be opened: no file")


def test_reason_and_log_of_many_pipelines_are_short(caplog: pytest.LogCaptureFixture):
    health = Health()
    with caplog.at_level(logging.INFO, logger="infeed_server"):
        for number in range(200):
            health.set(f"p{number}", False, "opening its source")
    first = "; ".join(f"p{number}: opening its source" for number in range(5))
    assert health.overall.reason == f"200 of 200 not ready: {first}; and 195 more"
    assert len(caplog.records) == 200
    assert max(len(record.getMessage()) for record in caplog.records) < 60


def test_draining_is_final():
    health = Health()
    health.set("train", True, "first batch made")
    health.drain()
    health.drain()
    health.set("train", True, "too late")
    assert health.overall == Readiness(False, "shutting down")
    assert health.parts == {"train": Readiness(False, "shutting down")}


def test_late_subscriber_gets_current_state_and_each_change_once():
    health = Health()
    health.set("train", True, "warm")
    received: list[tuple[str, Readiness]] = []
    health.subscribe(lambda name, readiness: received.append((name, readiness)))
    assert received == [
        ("train", Readiness(True, "warm")),
        ("", Readiness(True, "every pipeline is ready")),
    ]
    received.clear()
    health.set("train", True, "warm")
    assert received == []
    health.set("train", False, "the disk is gone")
    assert received == [
        ("train", Readiness(False, "the disk is gone")),
        ("", Readiness(False, "1 of 1 not ready: train: the disk is gone")),
    ]
    received.clear()
    health.drain()
    stopped = Readiness(False, "shutting down")
    assert received == [("train", stopped), ("", stopped)]


def test_change_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture):
    health = Health()
    with caplog.at_level(logging.INFO, logger="infeed_server"):
        health.set("train", True, "warm")
        health.set("train", True, "warm")
    assert [record.getMessage() for record in caplog.records] == [
        "pipeline 'train' is ready: warm",
        "server is ready: every pipeline is ready",
    ]
