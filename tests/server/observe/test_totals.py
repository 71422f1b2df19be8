"""Totals of each pipeline."""

from __future__ import annotations

from infeed.shared.errors import SourceError
from infeed_server.observe.totals import Totals


def test_totals_begin_at_zero_and_pipelines_are_apart() -> None:
    totals = Totals()
    names = ("batches", "samples", "bytes", "bad_samples", "quarantine_failures")
    zero = dict.fromkeys((*names, "source_errors", "streams"), 0)
    assert totals.counters("a") == zero
    for _ in range(3):
        totals.on_stream_opened("a")
    totals.on_stream_closed("a")
    totals.on_bad_sample("a", "mask")
    totals.on_source_error("a", SourceError("gone"))
    totals.on_quarantine_failed("a")
    totals.on_batch_sent("a", 7, 100)
    totals.on_batch_sent("a", 8, 200)
    totals.on_stage("a", "send", 0.5)
    totals.on_stage("a", "send", 0.25)
    assert totals.counters("a") == {
        "batches": 2,
        "samples": 15,
        "bytes": 300,
        "bad_samples": 1,
        "source_errors": 1,
        "quarantine_failures": 1,
        "streams": 2,
        "send_seconds": 0.75,
    }
    assert totals.counters("b") == zero
