"""Advice: each needs a figure that supports it, and has the gain that follows from the figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infeed_server.profile.advice import Advice, advice
from infeed_server.profile.figures import Change, Cost, Profile, Stage
from infeed_server.profile.forecast import forecast

READ = Stage("read", "read images", Cost(100e-6, 25e-6), 1e5, 1e5)
STEP = Stage("transform", "resize", Cost(1800e-6, 450e-6), 1e5, 1e5, ordinal=1)
ENCODE = Stage("encode", "encode", Cost(100e-6, 25e-6), 1e5, 1e5)


def found(*stages: Stage, changes: tuple[Change, ...] = (), kind: str = "images") -> list[Advice]:
    profile = Profile(
        "p",
        cores=4,
        source_kind=kind,
        stages=[*stages, ENCODE],
        changes=[*changes],
        wire_bytes=1e5,
    )
    made = forecast(profile)
    assert made is not None
    return advice(profile, made)


def test_no_advice_without_a_figure_that_supports_it() -> None:
    slower = Change("crop_first", "crop first", 2100e-6, 1e5)
    little = Change("cache", "cache", 1950e-6, 1e5)
    assert found(READ, STEP, changes=(slower, little)) == []


def test_measured_change_has_its_gain_and_figures() -> None:
    (crop,) = found(READ, STEP, changes=(Change("crop_first", "crop first", 1600e-6, 1e5),))
    assert (crop.kind, crop.gain_percent) == ("crop_first", pytest.approx(25))
    assert crop.text == "crop first (measured: 2,000 µs → 1,600 µs of CPU time per sample)"


def test_largest_gain_is_first() -> None:
    changes = (Change("crop_first", "a", 1600e-6, 1e5), Change("cache", "b", 200e-6, 1e5))
    assert [each.kind for each in found(READ, STEP, changes=changes)] == ["cache", "crop_first"]


def test_change_that_saves_bytes_alone_is_advised() -> None:
    (move,) = found(READ, STEP, changes=(Change("finish_at_trainer", "move", 2000e-6, 2.5e4),))
    assert move.gain_percent == pytest.approx(0)
    assert "100.0 KB → 25.0 KB on the wire" in move.text


def test_slow_source_is_named_and_less_cpu_time_is_no_advice() -> None:
    slow = replace(READ, cost=Cost(100e-6, 2000e-6))
    (source,) = found(slow, STEP, changes=(Change("crop_first", "crop", 1000e-6, 1e5),))
    assert (source.kind, source.gain_percent) == ("slow_source", pytest.approx(300))
    assert "50 MB/s: it reaches 500 samples/s, all other stages 2,000" in source.text
    assert source.at_most


def test_cache_removes_the_limit_of_reading() -> None:
    slow = replace(READ, cost=Cost(100e-6, 2000e-6))
    kinds = [each.kind for each in found(slow, STEP, changes=(Change("cache", "c", 1e-3, 1e5),))]
    assert kinds == ["cache", "slow_source"]


def test_function_in_python_with_the_limit_has_processes_as_its_remedy() -> None:
    function = Stage("map", "map mine:f", Cost(1000e-6, 1000e-6), 1e5, 1e5)
    (advised,) = found(READ, function)
    assert advised.kind == "python_processes"
    assert "map mine:f is the limit" in advised.text


def test_data_set_in_python_with_the_limit_has_processes_as_its_remedy() -> None:
    (advised,) = found(replace(READ, cost=Cost(1e-3, 1e-3)), kind="python")
    assert "raise source.processes" in advised.text


def test_function_of_the_user_with_a_large_share_is_named_with_it() -> None:
    function = replace(STEP, name="map mine:f")
    (advised,) = found(READ, function)
    assert (advised.kind, advised.at_most) == ("own_function", True)
    assert "map mine:f takes 90% of the CPU time, 1,800 µs per sample" in advised.text
    assert advised.gain_percent == pytest.approx(900)


def test_python_in_the_graph_is_named_with_the_rate_of_all_cores() -> None:
    function = replace(STEP, name="map mine:f", runs_python=True, cost=Cost(1800e-6, 1800e-6))
    (advised,) = found(READ, function)
    assert advised.kind == "python_in_graph"
    assert advised.gain_percent == pytest.approx(100 * (2000 * 1.8e-3 - 1))


def test_python_in_the_graph_that_hardly_limits_is_no_advice() -> None:
    function = replace(STEP, name="map mine:f", runs_python=True, cost=Cost(1800e-6, 510e-6))
    assert found(READ, function) == []


def test_function_of_the_user_with_a_small_share_is_no_advice() -> None:
    function = replace(STEP, name="map mine:f", cost=Cost(400e-6, 100e-6))
    assert found(READ, STEP, function) == []
