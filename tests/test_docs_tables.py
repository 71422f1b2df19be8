"""Tests of `tools/docs`: the tables of the documents are from the code, and its errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.cases import CASES
from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.results import Outcome
from tools.docs import all_tables, benchmarks, run
from tools.docs.markdown import DocsError, Table
from tools.docs.pages import ROOT, diffs, fill

SEED = Table(("option", "default"), [("`seed`", "`0`")])
PAGE = """# Page

<!-- generated: options.shuffle -->
<!-- end -->

The end.
"""
FILLED = """# Page

<!-- generated: options.shuffle -->

| option | default |
|---|---|
| `seed` | `0` |

<!-- end -->

The end.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a repository with two pages, one of which has a marker."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Project\n")
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    return tmp_path


def test_pages_have_the_tables_of_the_code() -> None:
    assert diffs(ROOT, all_tables()) == {}


def test_write_fills_the_marker_and_a_second_run_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {"options.shuffle": SEED}
    assert run(root, lambda: tables, check=False) == 0
    assert (root / "docs" / "page.md").read_text() == FILLED
    assert capsys.readouterr().out == "docs/page.md: written\n"
    assert run(root, lambda: tables, check=False) == 0
    assert run(root, lambda: tables, check=True) == 0
    assert capsys.readouterr().out == ""


def test_check_reports_a_stale_table_with_its_page_and_the_command(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "docs" / "page.md").write_text(FILLED)
    newer = Table(SEED.columns, [("`seed`", "`17`")])
    assert run(root, lambda: {"options.shuffle": newer}, check=True) == 1
    output = capsys.readouterr()
    assert "-| `seed` | `0` |\n+| `seed` | `17` |\n" in output.out
    assert output.err == "docs/page.md: a table differs from the code; run make docs\n"
    assert (root / "docs" / "page.md").read_text() == FILLED


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (PAGE.replace("shuffle", "shufle"), "page.md: no table 'options.shufle'; tables: errors"),
        (PAGE.replace("<!-- end -->\n", ""), "NAME --> without <!-- end -->, or the reverse"),
        (PAGE + "\n[the order]: #order\n", "page.md: no text for the link [the order]; correct"),
    ],
    ids=["unknown", "no end", "unused link"],
)
def test_wrong_marker_is_an_error_that_names_the_line(page: str, message: str) -> None:
    with pytest.raises(DocsError, match=re.escape(message)):
        fill("page.md", page, {"options.shuffle": SEED, "errors": SEED})


def test_table_without_a_page_is_an_error_with_the_lines_to_add(root: Path) -> None:
    with pytest.raises(DocsError, match=r"no page has options\.parquet; .* <!-- generated: opt"):
        diffs(root, {"options.shuffle": SEED, "options.parquet": SEED})


def test_results_show_their_spread_target_and_run() -> None:
    ours, theirs = Figures("infeed", [1.0, 2.0, 3.0]), Figures("service", [2.0, 2.0, 2.0])
    finding = Finding("GB/s", ours, theirs, Target(1.5))
    machine = dict.fromkeys(("processor", "cores", "memory", "kernel"), "some")
    machine |= dict.fromkeys(("Python", "TensorFlow", "infeed"), "1.0")
    saved = Outcome([finding], None, Plan(3, 2.0), 0.25, "2026-12-01T10:00:00").to_json()
    made = benchmarks.tables({"transport-uint8": {"machine": machine, **saved}})
    command = '`make bench BENCH="--pairs 3 --seconds 2"`'
    assert made["benchmarks.runs"].rows == [("a", "2026-12-01", command, "1", "0.2 to 0.2")]
    row = ("GB/s", "2", "2 (tf.data service)", "**1.00** [0.50\N{EN DASH}1.50]")
    rows = made["benchmarks.transport"].rows
    assert ("`transport-uint8`", *row, "≥ 1.5, **missed**", "a") in rows
    assert ("`transport-float32`", "no published result", *[""] * 5) in rows


def test_every_case_is_in_one_table_of_results() -> None:
    rows = [
        row[0]
        for name, table in benchmarks.tables({}).items()
        if name not in ("benchmarks.runs", "benchmarks.machines")
        for row in table.rows
    ]
    assert sorted(rows) == sorted(f"`{name}`" for name in CASES)
