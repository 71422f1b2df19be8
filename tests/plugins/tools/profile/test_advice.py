"""Advice: all that a profile's figures support, and no more."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from infeed.shared.report import ServerReport
from infeed_tools.profile.advice import advice, doubt
from infeed_tools.profile.figures import Cost, Profile, Stage

READ = Stage("read", "read images", Cost(100e-6, 400e-6), 100_000, 100_000)
STEP = Stage("transform", "decode_image", Cost(1800e-6, 500e-6), 100_000, 1 << 20, ordinal=0)
SMALL = Stage("transform", "random_crop", Cost(100e-6, 50e-6), 1 << 20, 150_000, ordinal=1)


RUN = ServerReport(2.0, 200, cpu_seconds=8.0, cores=4.0, available_cores=4.0)
"""A run on all of four cores: 4,000 µs of CPU time per sample, in batches of 10."""

READS = replace(RUN, cpu_seconds=2.0, source_seconds=1.8)


def found(*stages: Stage, run: ServerReport = RUN, kind: str = "images") -> list[str]:
    made = Profile("p", 4, 10, kind, source_samples=500, stages=[*stages], run=run)
    return advice(made)


TAKES = "decode_image takes 90% of the CPU time: smaller images decode"
NORMALIZE = replace(SMALL, name="normalize", bytes_in=150_000, bytes_out=600_000)
FUNCTION = Stage("map", "map mine:f", Cost(10e-6, 1000e-6), 1e5, 1e5)
SLOW_READ = replace(READ, cost=Cost(100e-6, 2000e-6))
CACHED = replace(READ, cached=True)
FEW = [replace(SMALL, name=f"t{number}") for number in range(8)]
RESIZE = replace(STEP, name="resize_to", cacheable=True)


@pytest.mark.parametrize(
    ("stages", "options", "start"),
    [
        ([READ, STEP, SMALL], {}, f"0: {TAKES}"),
        ([READ, replace(STEP, name="map mine:f")], {}, "0: map mine:f takes 95% .*: make it cheap"),
        ([READ, *FEW], {}, ""),
        (
            [READ, RESIZE, SMALL],
            {},
            "95% of the CPU time goes .*: cache after resize_to .* for 500 MiB of .* 500 samples",
        ),
        ([CACHED, replace(RESIZE, cached=True), SMALL], {}, ""),
        ([replace(STEP, name="x"), NORMALIZE], {}, "1: normalize turns 150 KB into 600 KB before"),
        ([SLOW_READ, SMALL], {"run": READS}, "reading is the limit, at 50 MB/s alone: use .*"),
        ([CACHED, SMALL], {"run": READS}, ""),
        (
            [READ, SMALL],
            {"run": READS, "kind": "python"},
            "the data set in Python .*: raise source",
        ),
        ([READ, FUNCTION], {"run": READS}, "map mine:f is the limit: raise its processes$"),
    ],
)
def test_what_limits_is_named_with_a_remedy(
    stages: list[Stage], options: dict[str, Any], start: str
) -> None:
    texts = found(*stages, **options)
    assert bool(texts) == bool(start)
    assert not start or re.match(start, texts[0]), texts


@pytest.mark.parametrize(("cpu", "is_doubted"), [(0.003, False), (0.006, True), (0.002, True)])
def test_stages_far_from_the_run_are_doubted(cpu: float, is_doubted: bool) -> None:
    stage = Stage("transform", "crop", Cost(cpu, cpu), 8, 8)
    profile = Profile("p", 4, batch_size=10, stages=[stage], run=RUN)
    assert bool(doubt(profile)) is is_doubted
