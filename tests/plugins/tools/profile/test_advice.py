"""Advice: what the figures of a profile support, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infeed.shared.report import ServerReport
from infeed_tools.profile.advice import advice, doubt
from infeed_tools.profile.figures import Cost, Profile, Stage

READ = Stage("read", "read images", Cost(100e-6, 400e-6), 100_000, 100_000)
STEP = Stage("transform", "decode_image", Cost(1800e-6, 500e-6), 100_000, 1 << 20, ordinal=0)
SMALL = Stage("transform", "random_crop", Cost(100e-6, 50e-6), 1 << 20, 150_000, ordinal=1)


RUN = ServerReport(2.0, 200, cpu_seconds=8.0, cores=4.0, available_cores=4.0)
"""With all of four cores: 4,000 µs of CPU time for a sample in batches of 10."""

READS = replace(RUN, cpu_seconds=2.0, source_seconds=1.8)


def found(*stages: Stage, run: ServerReport = RUN, kind: str = "images") -> list[str]:
    made = Profile("p", 4, 10, kind, source_samples=500, stages=[*stages], run=run)
    return advice(made)


def test_large_stage_is_named_with_its_share() -> None:
    (text,) = found(READ, STEP, SMALL)
    assert text.startswith("0: decode_image takes 90% of the CPU time: smaller images decode")
    (text,) = found(READ, replace(STEP, name="decode_image+center_crop"), SMALL)
    assert text.startswith("0: decode_image+center_crop takes 90% of the CPU time: smaller images")


def test_small_shares_are_no_advice() -> None:
    others = [replace(SMALL, name=f"t{number}") for number in range(8)]
    assert found(READ, replace(SMALL, name="resize"), *others) == []


def test_function_of_the_user_is_named() -> None:
    (text,) = found(READ, replace(STEP, name="map mine:f"))
    assert text == (
        "0: map mine:f takes 95% of the CPU time: make it cheaper, or do its work once, before "
        "training"
    )


def test_work_that_repeats_can_be_cached() -> None:
    steps = (replace(STEP, name="resize_to", cacheable=True), SMALL)
    (text,) = found(READ, *steps)
    assert text == (
        "95% of the CPU time is for what is the same in every epoch: cache behind resize_to "
        "(transforms[0]) leaves it out from the second on, and takes 500 MiB of memory for 500 "
        "samples"
    )
    assert found(replace(READ, cached=True), replace(steps[0], cached=True), SMALL) == []


def test_transform_that_makes_more_to_send_is_named() -> None:
    normalize = replace(SMALL, name="normalize", bytes_in=150_000, bytes_out=600_000)
    (text,) = found(replace(STEP, name="other"), normalize)
    assert text.startswith("1: normalize makes 600 KB of 150 KB before they are sent: at the end")


def test_slow_storage_is_named_with_its_rate() -> None:
    texts = found(replace(READ, cost=Cost(100e-6, 2000e-6)), SMALL, run=READS)
    assert texts[0].startswith("reading is the limit, alone with 50 MB/s: use nearer or faster")
    assert "TFRecords read many at once" in texts[0]


def test_python_that_limits_needs_processes() -> None:
    (text,) = found(READ, SMALL, run=READS, kind="python")
    assert text == "the data set in Python is the limit: raise source.processes"
    function = Stage("map", "map mine:f", Cost(10e-6, 1000e-6), 1e5, 1e5)
    assert found(READ, function, run=READS) == ["map mine:f is the limit: raise its processes"]


def test_reading_for_a_cache_is_no_limit() -> None:
    assert found(replace(READ, cached=True), SMALL, run=READS) == []


@pytest.mark.parametrize(("cpu", "is_doubted"), [(0.003, False), (0.006, True), (0.002, True)])
def test_stages_far_from_the_run_are_doubted(cpu: float, is_doubted: bool) -> None:
    stage = Stage("transform", "crop", Cost(cpu, cpu), 8, 8)
    profile = Profile("p", 4, batch_size=10, stages=[stage], run=RUN)
    assert bool(doubt(profile)) is is_doubted
