"""The soak: its figures are judged as it says, and shorter forms of its runs hold."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from benchmarks.processes import ROOT
from rich.console import Console
from tests.stress.soak.curve import TOLERANCE_HANDLES, TOLERANCE_MB, Check, Curve, handles
from tests.stress.soak.server import Server


def curve(*values: float, column: str = "server MB") -> Curve:
    made = Curve((column, "other"))
    for number, value in enumerate(values):
        made.add(str(number), value, 0)
    return made


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([0, 300, 300, 300, 300], True),  # the start is not counted
        ([0, 300, 300, 300, 300 + TOLERANCE_MB - 1], True),
        ([0, 300, 300, 300, 300 + TOLERANCE_MB + 1], False),
        ([0, 1000, 1000, 1000, 1049], True),
        ([0, 1000, 1000, 1000, 1051], False),
        ([*range(0, 500, 2)], False),  # a slow leak
        ([300, 800, 300, 300, 300], True),  # what was given back
    ],
)
def test_memory_is_flat_or_not(values: list[float], flat: bool) -> None:
    assert curve(*values).flat("server MB", "run").holds is flat


@pytest.mark.parametrize(
    ("more", "flat"), [(TOLERANCE_HANDLES, True), (TOLERANCE_HANDLES + 1, False)]
)
def test_handles_have_a_tolerance_of_their_own(more: float, flat: bool) -> None:
    check = curve(10, 12, 12, 12, 12 + more, column="files").flat("files", "run")
    assert check.holds is flat


def test_a_check_says_what_it_found() -> None:
    assert str(Check("rate", 0.95, 0.9, at_least=True)) == "ok: rate: 0.95 (at least 0.9)"
    told = str(curve(0, 300, 300, 300, 400).flat("server MB", "run"))
    assert told == "FAILED: run: server MB rose from 300 to 400: 100 MB (at most 32 MB)"


def test_the_table_shows_a_few_rows_and_the_last() -> None:
    table = curve(*range(100)).table("title", "steps")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    lines = [
        line.split("│")[1].strip() for line in console.export_text().splitlines() if "│" in line
    ]
    assert lines[0] == "0"
    assert lines[-1] == "99"
    assert len(lines) <= 18


def test_handles_of_a_process() -> None:
    program = "import threading; threading.Thread(target=input).start(); print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert handles(process.pid) == (3, 2)


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
        # Other tests run beside it, so hardly anything is asked of the rates.
        ("stopped", "--seconds", "20", "--rate", "0.2"),
        ("churn", "--connects", "400"),
        ("batches", "--count", "4000"),
    ],
    ids=lambda words: words[0],
)
def test_memory_stays_as_it_is(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.stress.soak", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all holds" in done.stdout
