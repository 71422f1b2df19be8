"""Tests of `tools/docs`: the tables of the documents are from the code, and its errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.docs import all_tables, run
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
