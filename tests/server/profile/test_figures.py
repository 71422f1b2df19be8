"""Figures of a profile: the limit of its run, and what its stages support as advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infeed.shared.report import ServerReport
from infeed_server.profile.figures import Cost, Profile, Stage

RUN = ServerReport(
    seconds=2.0,
    batches=200,
    transform_seconds=2.0,
    cpu_seconds=8.0,
    cores=4.0,
    available_cores=4.0,
)
"""100 batches/s, with all of four cores."""

READ = Stage("read", "read images", Cost(100e-6, 400e-6), 100_000, 100_000)
STEP = Stage("transform", "0: decode_image", Cost(1800e-6, 500e-6), 100_000, 1 << 20)
SMALL = Stage("transform", "1: random_crop", Cost(100e-6, 50e-6), 1 << 20, 150_000)


def advice(*stages: Stage, reads: bool = False, kind: str = "images") -> list[str]:
    run = replace(RUN, cpu_seconds=2.0, source_seconds=1.8, transform_seconds=0.2)
    profile = Profile("p", 4, source_kind=kind, stages=[*stages], run=run if reads else RUN)
    return profile.advice()


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, "cpu"),
        ({"cpu_seconds": 2.0, "available_cores": 1.0}, "cpu"),
        ({"cpu_seconds": 2.0, "available_cores": 1.0, "source_seconds": 1.0}, "read"),
        ({"cpu_seconds": 2.0, "source_seconds": 1.8}, "read"),
        ({"cpu_seconds": 2.0}, "transforms"),
    ],
)
def test_limit_is_what_the_run_had_no_more_of(changes: Any, limit: str) -> None:
    assert Profile("p", 4, run=replace(RUN, **changes)).limit == limit


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("0: decode_image", "0: decode_image takes 90% of the CPU time: smaller images decode"),
        ("0: decode_image+center_crop", "0: decode_image+center_crop takes 90% of the CPU time: "),
        ("0: map mine:f", "0: map mine:f takes 90% of the CPU time: make it cheaper, or do its"),
    ],
)
def test_large_stage_is_named_with_its_share(name: str, text: str) -> None:
    (found,) = advice(READ, replace(STEP, name=name), SMALL)
    assert found.startswith(text)


def test_small_shares_are_no_advice() -> None:
    others = [replace(SMALL, name=f"t{number}") for number in range(8)]
    assert advice(READ, replace(SMALL, name="0: resize"), *others) == []


def test_transform_that_makes_more_to_send_is_named() -> None:
    normalize = replace(SMALL, name="1: normalize", bytes_in=150_000, bytes_out=600_000)
    (text,) = advice(replace(STEP, name="0: other"), normalize)
    assert text.startswith("1: normalize makes 600 KB of 150 KB before they are sent: at the end")


def test_limit_of_reading_is_named_by_its_source() -> None:
    (text,) = advice(READ, SMALL, reads=True)
    assert text.startswith("reading is the limit: use nearer or faster storage; a file for each")
    function = replace(READ, name="read images, map mine:f")
    expected = ["functions in Python are the limit: raise processes, of the source or the map"]
    assert advice(READ, SMALL, reads=True, kind="python") == expected
    assert advice(function, SMALL, reads=True) == expected
