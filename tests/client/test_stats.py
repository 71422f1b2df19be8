"""Statistics of a feed and their verdict."""

from __future__ import annotations

import dataclasses
import io
import threading
from types import SimpleNamespace

import pytest

from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.verdict import judge
from infeed.stats import Progress, Stats, StatsRecorder


def stats_of(waits: list[float], work: float, earlier: Stats | None = None) -> Stats:
    """Returns the statistics of a run with `work` seconds between the waits."""
    recorder, now, progress = StatsRecorder(), 100.0, Progress()
    recorder.earlier = earlier
    for wait in waits:
        progress = progress.plus(4, 1000)
        recorder.record(now, now + wait, progress)
        recorder.record(now, now + 1e6, progress)  # again, after an interrupt
        now += wait + work
    return recorder.stats(
        progress,
        servers=("a:1", "b:2"),
        reconnects=2,
        prefetched_bytes=3000,
        prefetch_limit_bytes=9000,
    )


def test_another_thread_reads_the_statistics() -> None:
    """On free-threaded Python, a batch may come at any point of it."""
    recorder, read = StatsRecorder(), threading.Event()

    def record() -> None:
        progress = Progress()
        while not read.is_set():
            progress = progress.plus(4, 1000)
            recorder.record(0.0, 0.03, progress)

    thread = threading.Thread(target=record)
    thread.start()
    try:
        for _ in range(200):
            assert recorder.stats(Progress()).wait_p50_seconds in {0.0, 0.03}
    finally:
        read.set()
        thread.join()


def test_long_waits() -> None:
    stats = stats_of([5.0] + [0.03] * 100, work=0.01)
    assert (stats.steps, stats.samples, stats.bytes) == (101, 404, 101_000)
    assert stats.first_batch_seconds == pytest.approx(5.0)
    assert stats.wait_share == pytest.approx(0.75)
    assert stats.wait_max_seconds == pytest.approx(0.03)
    assert stats.starved_steps == 100
    assert stats.bytes_per_second == pytest.approx(25_000)
    assert stats.samples_per_second == pytest.approx(100)
    assert (stats.prefetched_bytes, stats.prefetch_limit_bytes) == (3000, 9000)


def test_statistics_of_feeds_one_after_the_other() -> None:
    """Three short passes: no time between them counts, and the later first batches do."""
    report = TrainerReport(seconds=1.5, steps=10, wait_seconds=0.6, total_steps=11, streams=2)
    whole = None
    for _ in range(3):
        whole = stats_of([5.0] + [0.03] * 10, work=0.01, earlier=whole)
    assert whole is not None
    assert (whole.steps, whole.samples, whole.bytes) == (33, 132, 33_000)
    assert (whole.reconnects, whole.starved_steps) == (6, 32)
    assert whole.first_batch_seconds == pytest.approx(5.0)
    assert whole.wait_max_seconds == pytest.approx(5.0)
    assert whole.seconds == pytest.approx(3 * 0.4 + 2 * 5.0)
    assert whole.wait_share == pytest.approx((3 * 0.3 + 2 * 5.0) / whole.seconds)
    assert whole.samples_per_second == pytest.approx(32 * 4 / whole.seconds)
    merged = report.after(report.after(report))
    assert (merged.seconds, merged.steps, merged.total_steps, merged.streams) == (4.5, 30, 33, 2)
    assert judge([RankReport(0, merged)], 1, []).level == "highly input-bound"
    long = dataclasses.replace(report, seconds=10.0)
    assert long.after(report) == dataclasses.replace(long, total_steps=22)
    # Of many passes, those of the last seconds count.
    merged = report
    for _ in range(20):
        merged = report.after(merged)
    assert (merged.seconds, merged.total_steps) == (pytest.approx(10.0), 231)
    assert merged.wait_share == pytest.approx(0.4)


def test_text_begins_with_the_verdict() -> None:
    stats = stats_of([0.5] + [0.0001] * 50, work=0.1)
    assert stats.starved_steps == 0
    report = TrainerReport(seconds=10.0, steps=50, wait_seconds=0.01)
    stats = dataclasses.replace(stats, assessment=judge([RankReport(0, report)], 1, []))
    assert (
        stats.verdict == "not input-bound: the trainer waited 0.1 % of the time; the input keeps up"
    )
    text = str(stats)
    notebook = io.StringIO()
    stats._repr_pretty_(SimpleNamespace(text=notebook.write), cycle=False)
    assert notebook.getvalue() == text
    assert text.startswith(stats.verdict)
    for part in ("51 steps, 204 samples", "p50 100 µs", "500.0 ms", "2 reconnects", "a:1, b:2"):
        assert part in text


def test_text_has_the_rate_of_each_of_several_connections() -> None:
    stats = stats_of([0.5, 0.1], work=0.1)
    one = dataclasses.replace(stats, batch_rates={"a:1": 24.04})
    assert "by connection" not in str(one)
    two = dataclasses.replace(stats, batch_rates={"a:1": 24.04, "a:1#2": 0.5})
    assert "batches/s by connection: a:1 24, a:1#2 0.5" in str(two)


def test_text_ends_with_the_work_that_servers_had_already_done() -> None:
    stats = stats_of([0.5, 0.1], work=0.1)
    idle = ServerReport(seconds=10.0, computed_samples=5, cache_misses=7)
    busy = ServerReport(seconds=10.0, computed_samples=20, shared_samples=75, cache_hits=21)
    assert "samples from" not in str(dataclasses.replace(stats, server_reports={"a:1": idle}))
    text = str(dataclasses.replace(stats, server_reports={"a:1": idle, "b:2": busy}))
    assert text.endswith("75% of samples shared with other trainers, 75% of samples from the cache")


def test_percentiles_are_of_the_waits_after_the_first() -> None:
    stats = stats_of([9.0, *(0.001 * number for number in range(1, 102))], work=0.01)
    assert stats.wait_p50_seconds == pytest.approx(0.051)
    assert stats.wait_p99_seconds == pytest.approx(0.1)
    assert stats.wait_max_seconds == pytest.approx(0.101)


def test_counters_begin_after_the_first_batch() -> None:
    recorder = StatsRecorder()
    assert recorder.first_at is None
    recorder.waiting_since = 90.0
    assert recorder.counters(95.0) == {"steps": 0, "wait_seconds": 0, "starved_steps": 0}
    recorder.record(90.0, 100.0, Progress(1, 1, 1))
    assert recorder.first_at == 100.0
    recorder.record(101.0, 103.0, Progress(2, 2, 2))
    assert recorder.last_at == 103.0
    assert recorder.counters(110.0) == {"steps": 1, "wait_seconds": 2.0, "starved_steps": 1}


def test_current_wait_is_counted_until_its_batch_comes() -> None:
    recorder = StatsRecorder()
    recorder.record(90.0, 100.0, Progress(1, 1, 1))
    recorder.waiting_since = 104.0
    assert recorder.counters(110.0)["wait_seconds"] == 6.0
    recorder.record(104.0, 111.0, Progress(2, 2, 2))
    assert recorder.counters(200.0)["wait_seconds"] == 7.0
