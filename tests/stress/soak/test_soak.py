"""Soak runs: checks of their figures, and shorter runs."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from benchmarks.processes import ROOT
from rich.console import Console
from tests.stress.soak.curve import TOLERANCE_HANDLES, TOLERANCE_MB, Check, Curve, handle_counts
from tests.stress.soak.server import Server


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


def test_check_text_has_result_value_and_bound() -> None:
    assert str(Check("rate", 0.95, 0.9, at_least=True)) == "ok: rate: 0.95 (at least 0.9)"
    text = str(curve(0, 300, 300, 300, 400).check_flat("server MB", "run"))
    assert text == "FAILED: run: server MB rose from 300 to 400: 100 MB (at most 48 MB)"


def test_table_has_few_rows_including_the_last() -> None:
    table = curve(*range(100)).table("title", "steps")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    lines = [
        line.split("│")[1].strip() for line in console.export_text().splitlines() if "│" in line
    ]
    assert lines[0] == "0"
    assert lines[-1] == "99"
    assert len(lines) <= 18


def test_handle_counts_include_files_and_threads() -> None:
    program = "import threading; threading.Thread(target=input).start(); print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert handle_counts(process.pid) == (3, 2)


def test_gauges_are_summed_over_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"""# HELP infeed_unsent_bytes What these take.
infeed_unsent_bytes{pipeline="a"} 1.5e+06
infeed_unsent_bytes{pipeline="b"} 2000.0
infeed_unsent_bytes_more{pipeline="b"} 7.0
infeed_unsent_limit_bytes 9.0
"""
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO(text))
    server = Server("a:1", "a:2", 1)
    assert server.gauge("unsent_bytes") == 1_502_000
    assert server.gauge("unsent_limit_bytes") == 9


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
