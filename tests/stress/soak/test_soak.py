"""Soak runs: checks of their figures, and shorter runs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from benchmarks.processes import ROOT
from tests.stress.soak.curve import TOLERANCE_HANDLES, TOLERANCE_MB, Curve


def curve(*values: float, column: str = "server MB") -> Curve:
    samples = Curve((column, "other"))
    for number, value in enumerate(values):
        samples.add(str(number), value, 0)
    return samples


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [
        ([0, 300, 300, 300, 300], True),  # the start-up is not compared
        ([0, 300, 300, 300, 300 + TOLERANCE_MB - 1], True),
        ([0, 300, 300, 300, 300 + TOLERANCE_MB + 1], False),
        ([0, 1000, 1000, 1000, 1049], True),
        ([0, 1000, 1000, 1000, 1051], False),
        ([*range(0, 500, 2)], False),  # a slow leak
        ([300, 800, 300, 300, 300], True),  # a peak that was freed
        ([0, 0, 300, 310, 300, 300, 300, 300, 300, 800], True),  # one that will be
        ([0, 0, 300, 800, 300, 300, 300, 300, 400, 900], False),
    ],
)
def test_memory_within_the_tolerance_is_flat(values: list[float], is_flat: bool) -> None:
    assert curve(*values).check_flat("server MB", "run").passed is is_flat


@pytest.mark.parametrize(
    ("growth", "is_flat"), [(TOLERANCE_HANDLES, True), (TOLERANCE_HANDLES + 1, False)]
)
def test_handles_within_their_tolerance_are_flat(growth: float, is_flat: bool) -> None:
    check = curve(10, 12, 12, 12, 12 + growth, column="files").check_flat("files", "run")
    assert check.passed is is_flat


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "words",
    [
        # Other tests run in parallel, so the required rate is low.
        ("stopped", "--seconds", "20", "--rate", "0.2"),
        ("churn", "--connects", "400"),
        ("batches", "--count", "4000"),
    ],
    ids=lambda words: words[0],
)
def test_memory_does_not_grow(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.stress.soak", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all checks passed" in done.stdout
