"""Work meter: time of open and answered requests, and the slowest recent sample."""

from __future__ import annotations

from tests.harness.clock import ManualClock

from infeed_python.work_meter import PythonWork, WorkMeter


def test_time_is_that_of_all_requests_that_have_begun() -> None:
    clock = ManualClock()
    meter = WorkMeter(2, clock)
    meter.begin("a")
    clock.now += 1.0
    meter.begin("a")  # repeated, because its worker ended
    meter.begin("b")
    clock.now += 2.0
    assert meter.work() == PythonWork(workers=2, seconds=5.0)
    meter.end("a")
    meter.end("never begun")
    clock.now += 3.0
    meter.end("b")
    clock.now += 4.0
    assert meter.work().seconds == 8.0


def test_slowest_sample_is_forgotten_after_20_seconds() -> None:
    clock = ManualClock()
    meter = WorkMeter(1, clock)
    meter.on_read(8, 0.5, 3)
    meter.on_read(8, 0.25, 4)
    assert meter.work() == PythonWork(1, 0.0, 16, slowest_sample=3, slowest_seconds=0.5)
    clock.now += 11.0
    meter.on_read(8, 0.1, 5)
    assert meter.work().slowest_sample == 3
    clock.now += 11.0
    meter.on_read(8, 0.2, 6)
    assert (meter.work().slowest_sample, meter.work().slowest_seconds) == (6, 0.2)
    clock.now += 60.0
    assert meter.work().slowest_seconds == 0.0
