"""Tests of `tools/docs`: the tables of the documents are from the code, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from tools.docs import definitions, docstrings
from tools.docs.command import all_tables, run
from tools.docs.markdown import DocsError, Table
from tools.docs.option_types import describe_type
from tools.docs.pages import ROOT, diffs, fill

from infeed_server.config.model import Definition
from infeed_server.transforms.base import FieldTransform

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


# --- the repository ---


def test_pages_have_the_tables_of_the_code() -> None:
    assert diffs(ROOT, all_tables()) == {}


# --- pages ---


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


def test_an_error_is_printed_and_no_page_is_written(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, dict, check=False) == 1
    assert capsys.readouterr().err.startswith("error: docs/page.md:3: no table")
    assert (root / "docs" / "page.md").read_text() == PAGE


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (
            PAGE.replace("shuffle", "shufle"),
            (
                "page.md:3: no table 'options.shufle' (did you mean 'options.shuffle'?); "
                "tables: errors, options.shuffle"
            ),
        ),
        (
            PAGE.replace("<!-- end -->\n", ""),
            "page.md:3: <!-- generated: options.shuffle --> has no <!-- end -->",
        ),
        (
            PAGE.replace("<!-- end -->", "<!-- generated: errors -->\n<!-- end -->"),
            "page.md:3: <!-- generated: options.shuffle --> has no <!-- end -->",
        ),
        (
            PAGE.replace("<!-- generated: options.shuffle -->\n", ""),
            "page.md:3: <!-- end --> without <!-- generated: NAME -->",
        ),
        (
            PAGE + "\n[the order]: #order\n",
            "page.md: no text for the link [the order]; correct its definition",
        ),
    ],
    ids=["unknown", "no end", "no end before the next", "no begin", "unused link"],
)
def test_wrong_marker_is_an_error_that_names_the_line(page: str, message: str) -> None:
    with pytest.raises(DocsError) as caught:
        fill("page.md", page, {"options.shuffle": SEED, "errors": SEED})
    assert str(caught.value) == message


def test_table_without_a_page_is_an_error_with_the_lines_to_add(root: Path) -> None:
    with pytest.raises(DocsError, match=r"no page has options\.parquet; .* <!-- generated: opt"):
        diffs(root, {"options.shuffle": SEED, "options.parquet": SEED})


# --- definitions ---


def test_type_without_a_name_is_an_error() -> None:
    with pytest.raises(DocsError, match="complex'> has no name in a table"):
        describe_type(complex)


class Base(Definition):
    """A definition with an option without a text."""

    other: bool = False


class Silent(FieldTransform):
    """Does nothing."""

    name: ClassVar[str] = "silent"


def test_attribute_without_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "PACKAGES", (__name__.partition(".")[0],))
    with pytest.raises(DocsError, match=r"\.Base\.other has no docstring"):
        docstrings.attribute_docstring(Base, "other")


def test_transform_without_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "REGISTRY", {"silent": Silent})
    with pytest.raises(DocsError, match=r"\.Silent: its docstring has no paragraph 'Result: "):
        definitions.tables()
