"""Metrics: what the registry shows, through the parser of Prometheus, and its totals."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from infeed.shared.errors import SourceError
from infeed_server.engines.monitor import EndedCall
from infeed_server.observe.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("0.1.0", "2.21.0")


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


def test_open_streams_are_counted(metrics: Metrics):
    metrics.on_stream_opened("train")
    metrics.on_stream_opened("train")
    metrics.on_stream_closed("train")
    assert values(metrics)["infeed_streams{pipeline=train}"] == 1


def test_values_of_functions_are_read_at_each_scrape(metrics: Metrics):
    assert "infeed_unsent_bytes{pipeline=train}" not in values(metrics)
    sizes = {("train",): 1024.0}
    metrics.read({"infeed_unsent_bytes": lambda: sizes})
    metrics.read({"infeed_pipeline_state_seconds": lambda: {("train", "source"): 7.5}})
    shown = values(metrics)
    assert shown["infeed_unsent_bytes{pipeline=train}"] == 1024
    assert shown["infeed_pipeline_state_seconds_total{pipeline=train,state=source}"] == 7.5
    sizes["train",] = 0
    assert values(metrics)["infeed_unsent_bytes{pipeline=train}"] == 0


def test_totals_are_sums_of_the_registry_by_pipeline(metrics: Metrics):
    for name in ("train", "eval"):
        metrics.add_pipeline(name)
    zero = metrics.totals()["eval"]
    assert set(zero.values()) == {0}
    metrics.on_batch_sent("train", 8, 1000)
    metrics.on_bad_sample("train", "mask")
    metrics.on_bad_sample("train", "raise")
    metrics.on_source_error("train", SourceError("x"))
    metrics.on_stream_opened("train")
    metrics.on_stage("train", "read", 0.5)
    metrics.on_stage("train", "read", 0.25)
    counted = {"batches": 1, "samples": 8, "bytes": 1000, "bad_samples": 2, "source_errors": 1}
    shown = {**counted, "streams": 1, "read_seconds": 0.75}
    assert metrics.totals() == {"train": {**zero, **shown}, "eval": zero}
    last = metrics.source_errors.last("train")
    assert last is not None
    assert last["error"] == "x"


def test_metrics_of_an_idle_pipeline_are_zero(metrics: Metrics):
    metrics.add_pipeline("train")
    shown = values(metrics)
    for name in ("batches_total", "samples_total", "sent_bytes_total", "streams"):
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
