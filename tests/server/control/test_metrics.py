"""Tests of `control/metrics.py`, through the parser of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from infeed.shared.errors import SourceError
from infeed_server.control.collectors import SampledCollector
from infeed_server.control.health import Health
from infeed_server.control.metrics import Metrics
from infeed_server.engines.monitor import EndedCall


def values(metrics: Metrics) -> dict[str, float]:
    """Returns all samples: `name{label=value,...}` → value."""
    text = generate_latest(metrics.registry).decode()
    return {
        sample.name + "{" + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())) + "}": (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_sent_batches_are_counted(metrics: Metrics):
    metrics.on_batch_sent("train", 64, 9_633_792)
    metrics.on_batch_sent("train", 10, 1_505_280)
    metrics.on_batch_sent("eval", 1, 8)
    shown = values(metrics)
    assert shown["infeed_batches_total{pipeline=train}"] == 2
    assert shown["infeed_samples_total{pipeline=train}"] == 74
    assert shown["infeed_sent_bytes_total{pipeline=train}"] == 11_139_072
    assert shown["infeed_batches_total{pipeline=eval}"] == 1


def test_stages_are_measured_in_seconds(metrics: Metrics):
    metrics.on_stage("train", "read", 0.003)
    metrics.on_stage("train", "read", 0.3)
    metrics.on_stage("train", "send", 60)
    shown = values(metrics)
    assert shown["infeed_stage_seconds_count{pipeline=train,stage=read}"] == 2
    assert shown["infeed_stage_seconds_sum{pipeline=train,stage=read}"] == pytest.approx(0.303)
    assert shown["infeed_stage_seconds_bucket{le=0.005,pipeline=train,stage=read}"] == 1
    assert shown["infeed_stage_seconds_bucket{le=30.0,pipeline=train,stage=send}"] == 0
    assert shown["infeed_stage_seconds_bucket{le=+Inf,pipeline=train,stage=send}"] == 1


def test_trace_is_an_exemplar_in_openmetrics_only(metrics: Metrics):
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    metrics.on_stage("train", "read", 0.003, trace_id)
    metrics.on_stage("train", "send", 0.003)
    text = openmetrics.generate_latest(metrics.registry).decode()
    (line,) = [line for line in text.splitlines() if " # {" in line]
    assert line.startswith('infeed_stage_seconds_bucket{le="0.005",pipeline="train",stage="read"}')
    assert f' # {{trace_id="{trace_id}"}} 0.003 ' in line
    assert trace_id not in generate_latest(metrics.registry).decode()


def test_bad_samples_are_counted_by_action(metrics: Metrics):
    metrics.on_bad_sample("train", "mask")
    metrics.on_bad_sample("train", "mask")
    metrics.on_bad_sample("train", "raise")
    shown = values(metrics)
    assert shown["infeed_bad_samples_total{action=mask,pipeline=train}"] == 2
    assert shown["infeed_bad_samples_total{action=raise,pipeline=train}"] == 1


def test_source_errors_are_counted_by_fault(metrics: Metrics):
    metrics.add_pipeline("train")
    for fault in ("changed", "changed", None):
        metrics.on_source_error("train", SourceError("x", fault=fault))
    shown = values(metrics)
    counts = {"changed": 2, "damaged": 0, "storage": 1}
    for fault, count in counts.items():
        assert shown[f"infeed_source_errors_total{{fault={fault},pipeline=train}}"] == count


def test_bad_samples_that_the_quarantine_log_lacks_are_counted(metrics: Metrics):
    metrics.on_quarantine_failed("train")
    assert values(metrics)["infeed_quarantine_failures_total{pipeline=train}"] == 1


def test_peers_are_counted(metrics: Metrics):
    for status in ("OK", "OK", "CANCELLED"):
        metrics.on_call(EndedCall("/a.B/c", status, 2.0, 5000, 70))
    metrics.on_refused("streams")
    shown = values(metrics)
    assert shown["infeed_calls_total{method=/a.B/c,status=OK}"] == 2
    assert shown["infeed_calls_total{method=/a.B/c,status=CANCELLED}"] == 1
    assert shown["infeed_refused_total{reason=streams}"] == 1
    assert shown["infeed_refused_total{reason=unauthenticated}"] == 0  # exposed from the start


def test_a_scrape_has_readiness_of_now_and_the_certificate_of_the_last_update(
    metrics: Metrics,
):
    assert not [each for each in values(metrics) if "ready" in each or "expiry" in each]
    health = Health()
    metrics.serving.watch_health(health)
    ends = iter([1.5e9, None])
    metrics.serving.watch_certificate(lambda: next(ends))
    metrics.update()
    health.set("train", ready=True, reason="its first batch is made")
    health.set("eval", ready=False, reason="opening its source")
    shown = values(metrics)
    assert shown["infeed_pipeline_ready{pipeline=train}"] == 1
    assert shown["infeed_pipeline_ready{pipeline=eval}"] == 0
    assert shown["infeed_certificate_expiry_timestamp_seconds{}"] == 1.5e9
    health.drain()
    shown = values(metrics)
    assert shown["infeed_pipeline_ready{pipeline=train}"] == 0
    assert shown["infeed_certificate_expiry_timestamp_seconds{}"] == 1.5e9
    metrics.update()
    assert "infeed_certificate_expiry_timestamp_seconds{}" not in values(metrics)


def test_open_streams_are_counted(metrics: Metrics):
    metrics.on_stream_opened("train")
    metrics.on_stream_opened("train")
    metrics.on_stream_closed("train")
    assert values(metrics)["infeed_streams{pipeline=train}"] == 1


def test_queues_are_read_at_each_scrape(metrics: Metrics):
    sizes = {
        "queued_requests": 3,
        "unsent_batches": 1,
        "unsent_bytes": 1024,
        "window_bytes": 99,
    }
    queues: Any = SimpleNamespace(
        **{name: lambda name=name: sizes[name] for name in sizes},
    )
    metrics.watch("train", queues)
    shown = values(metrics)
    assert {name: shown[f"infeed_{name}{{pipeline=train}}"] for name in sizes} == sizes
    sizes["unsent_bytes"] = 0
    assert values(metrics)["infeed_unsent_bytes{pipeline=train}"] == 0


def test_limit_is_exposed(metrics: Metrics):
    metrics.set_limit(1 << 30)
    assert values(metrics)["infeed_unsent_limit_bytes{}"] == 1 << 30


def test_metrics_of_an_idle_pipeline_are_zero(metrics: Metrics):
    metrics.add_pipeline("train")
    shown = values(metrics)
    names = ("batches_total", "samples_total", "sent_bytes_total", "streams", "unsent_bytes")
    for name in (*names, "window_bytes"):
        assert shown[f"infeed_{name}{{pipeline=train}}"] == 0
    assert shown["infeed_stage_seconds_count{pipeline=train,stage=transform}"] == 0


def test_build_and_process_are_exposed(metrics: Metrics):
    shown = values(metrics)
    assert shown["infeed_build_info{tensorflow=2.21.0,version=0.1.0}"] == 1
    assert shown["process_resident_memory_bytes{}"] > 0


def test_metrics_of_two_servers_are_separate(metrics: Metrics):
    metrics.on_batch_sent("train", 1, 1)
    assert "infeed_batches_total{pipeline=train}" not in values(Metrics("0.1.0", "2.21.0"))


def test_calls_have_the_names_of_grpc(metrics: Metrics):
    metrics.on_call_started("/a.B/c")
    metrics.on_call_started("unknown")
    metrics.on_call(EndedCall("/a.B/c", "OK", 2.0, 5000, 70))
    shown = values(metrics)
    assert shown["grpc_server_call_started_total{grpc_method=a.B/c}"] == 1
    assert shown["grpc_server_call_started_total{grpc_method=other}"] == 1
    labels = "grpc_method=a.B/c,grpc_status=OK"
    assert shown[f"grpc_server_call_duration_seconds_sum{{{labels}}}"] == 2
    name = "total_compressed_message_size_bytes_sum"
    assert shown[f"grpc_server_call_sent_{name}{{{labels}}}"] == 5000
    assert shown[f"grpc_server_call_rcvd_{name}{{{labels}}}"] == 70


def test_trainers_and_states_are_read_at_each_scrape(metrics: Metrics):
    assert "infeed_desired_servers{}" not in values(metrics)
    view = SimpleNamespace(
        trainers=lambda: {("train",): 3},
        wait_ratios=lambda: {("train",): 0.25},
        state_seconds=lambda: {("train", "source"): 7.5},
        desired_servers=lambda: {(): 4},
    )
    metrics.watch_trainers(view)
    shown = values(metrics)
    assert shown["infeed_trainers{pipeline=train}"] == 3
    assert shown["infeed_wait_ratio{pipeline=train}"] == 0.25
    assert shown["infeed_pipeline_state_seconds_total{pipeline=train,state=source}"] == 7.5
    assert shown["infeed_desired_servers{}"] == 4


class _Uptime(Collector):
    """A metric that grows at each look."""

    def __init__(self) -> None:
        self._looks = 0

    def collect(self) -> Iterable[Metric]:
        self._looks += 1
        return [GaugeMetricFamily("uptime", "Looks.", self._looks)]


def test_a_sampled_collector_shows_the_last_update():
    sampled = SampledCollector(_Uptime())

    def value() -> float:
        (metric,) = sampled.collect()
        return metric.samples[0].value

    assert [value(), value()] == [1, 2]  # not updated yet
    sampled.update()
    assert [value(), value()] == [3, 3]
    sampled.update()
    assert value() == 4


def test_the_metrics_of_the_process_are_those_of_the_last_update():
    metrics = Metrics("1", "2")
    metrics.update()
    seconds = metrics.registry.get_sample_value("process_cpu_seconds_total")
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert metrics.registry.get_sample_value("process_cpu_seconds_total") == seconds
    metrics.update()
    assert metrics.registry.get_sample_value("process_cpu_seconds_total") > seconds
