"""Metrics: the registry as parsed by Prometheus' parser, and its totals."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from infeed_observe.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="0.1.0", tensorflow="2.21.0")


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


def test_event_of_a_pipeline_is_counted(metrics: Metrics):
    metrics.add_pipeline("p")
    zero = values(metrics)
    assert zero["infeed_refused_total{reason=streams}"] == 0
    for amount in (1, 2, -1):
        metrics.count("infeed_streams", "p", amount=amount)
    metrics.count("infeed_samples", "p", amount=64)
    metrics.count("infeed_part_samples", "p", "web", amount=48)
    metrics.count("infeed_bad_samples", "p", "mask")
    metrics.count("infeed_source_errors", "p", "changed")
    after = values(metrics)
    assert after["infeed_part_samples_total{part=web,pipeline=p}"] == 48
    for name, count in {
        "infeed_streams{pipeline=p}": 2,
        "infeed_samples_total{pipeline=p}": 64,
        "infeed_bad_samples_total{action=mask,pipeline=p}": 1,
        "infeed_bad_samples_total{action=raise,pipeline=p}": 0,
        "infeed_source_errors_total{fault=changed,pipeline=p}": 1,
        "infeed_source_errors_total{fault=damaged,pipeline=p}": 0,
    }.items():
        assert (zero[name], after[name]) == (0, count)


def test_stages_are_measured_in_seconds(metrics: Metrics):
    metrics.add_pipeline("train")
    for seconds in (0.003, 0.3):
        metrics.measure("infeed_stage_seconds", seconds, "train", "read")
    shown = values(metrics)
    assert shown["infeed_stage_seconds_count{pipeline=train,stage=read}"] == 2
    assert shown["infeed_stage_seconds_sum{pipeline=train,stage=read}"] == pytest.approx(0.303)
    assert shown["infeed_stage_seconds_bucket{le=0.005,pipeline=train,stage=read}"] == 1
    assert shown["infeed_stage_seconds_count{pipeline=train,stage=transform}"] == 0


def test_trace_is_an_exemplar_in_openmetrics_only(metrics: Metrics):
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    metrics.measure("infeed_stage_seconds", 0.003, "train", "read", trace_id=trace_id)
    metrics.measure("infeed_stage_seconds", 0.003, "train", "send")
    text = openmetrics.generate_latest(metrics.registry).decode()
    (line,) = [line for line in text.splitlines() if " # {" in line]
    assert line.startswith('infeed_stage_seconds_bucket{le="0.005",pipeline="train",stage="read"}')
    assert f' # {{trace_id="{trace_id}"}} 0.003 ' in line
    assert trace_id not in generate_latest(metrics.registry).decode()


def test_values_of_functions_are_read_at_each_scrape(metrics: Metrics):
    sizes = {("train",): 1024.0}
    metrics.expose("infeed_unsent_bytes", "Bytes.", lambda: sizes, "pipeline")
    states = {("train", "source"): 7.5}
    metrics.expose("infeed_pipeline_state_seconds_total", "x", lambda: states, "pipeline", "state")
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
    for name, amount in (("batches", 1), ("samples", 8), ("sent_bytes", 1000)):
        metrics.count(f"infeed_{name}", "train", amount=amount)
    metrics.count("infeed_bad_samples", "train", "mask")
    metrics.count("infeed_bad_samples", "train", "raise")
    metrics.count("infeed_part_samples", "train", "web")
    metrics.count("infeed_source_errors", "train", "storage")
    metrics.count("infeed_streams", "train")
    metrics.measure("infeed_stage_seconds", 0.5, "train", "read")
    metrics.measure("infeed_stage_seconds", 0.25, "train", "read")
    counted = {"batches": 1, "samples": 8, "bytes": 1000, "bad_samples": 2, "source_errors": 1}
    shown = {**counted, "streams": 1, "read_seconds": 0.75}
    assert metrics.totals() == {"train": {**zero, **shown}, "eval": zero}


def test_build_and_process_are_exposed(metrics: Metrics):
    shown = values(metrics)
    assert shown["infeed_build_info{tensorflow=2.21.0,version=0.1.0}"] == 1
    assert shown["process_resident_memory_bytes{}"] > 0
