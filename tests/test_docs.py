"""Checks of the documentation: links have a target, commands exist. tests/docs/ runs the code."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.harness.doc_blocks import PAGES, Block, read

from infeed.cli import main
from infeed.shared import cause
from infeed_tools.top.control_plane import ControlPlane

ROOT = Path(__file__).resolve().parents[1]


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """Returns the text outside of code blocks."""
    return re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL)


def spans(part: str) -> list[str]:
    """Returns the code spans."""
    return re.findall(r"`([^`]*)`", part)


@pytest.mark.parametrize(
    "block",
    [one for page in PAGES for one in read(page) if one.language == "python" and one.not_run],
    ids=str,
)
def test_python_block_that_is_not_run_compiles(block: Block):
    compile(block.code, str(block), "exec")


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub generates for a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_have_a_target(page: str):
    inline = re.findall(r"\]\(([^)\s]+)", prose(page))
    defined = re.findall(r"^\[[^\]]+\]: (\S+)$", prose(page), re.MULTILINE)
    for link in inline + defined:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page} links to {link}"


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_whole(page: str) -> None:
    """An empty line within a table makes text of its rest."""
    tables = re.findall(r"(?:^\|.*\n)+", prose(page), re.MULTILINE)
    assert [table for table in tables if not re.match(r".*\n(\|-+)+\|\n", table)] == []


@pytest.mark.parametrize("page", PAGES)
def test_paths_of_the_repository_exist(page: str) -> None:
    own = re.compile(
        r"(?:client|server|plugins|proto|tests|examples|deploy|native|tools|docs)/[\w./-]+"
    )
    cited = {span.rstrip("/.") for span in spans(prose(page)) if own.fullmatch(span)}
    paths = [path for path in cited if not re.search(r"[A-Z]{4}", path)]  # a placeholder has
    assert [path for path in paths if not (ROOT / path).exists()] == []


@cache
def help_text(*command: str) -> str:
    """Returns the `--help` of a command."""
    stdout = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}),
        patch.object(sys, "argv", ["infeed", *command, "--help"]),
        contextlib.redirect_stdout(stdout),
        pytest.raises(SystemExit) as caught,
    ):
        main()
    assert not caught.value.code
    return stdout.getvalue()


def documented_commands() -> dict[str, set[str]]:
    """Returns command → the options that it has on any page."""
    options: dict[str, set[str]] = {}
    for page in PAGES:
        code = [*spans(prose(page)), *(block.code for block in read(page))]
        for line in "\n".join(code).splitlines():
            command = re.match(r"(?:\S+/)?infeed ([a-z][a-z-]*)\b([^#]*)", line)
            if command:
                options.setdefault(command[1], set()).update(re.findall(r"--[a-z-]+", command[2]))
    return options


@pytest.mark.parametrize("command", sorted(documented_commands()))
def test_documented_command_exists(command: str):
    assert re.search(rf"^\W+{command}\b", help_text(), re.MULTILINE), f"no command {command}"
    for option in documented_commands()[command]:
        assert option in help_text(command), f"infeed {command} has no {option}"


def test_environment_variables_are_of_the_code() -> None:
    folders = ("client", "server", "plugins", "deploy", "tests", "benchmarks")
    files = [ROOT / "Makefile", *(file for name in folders for file in (ROOT / name).rglob("*.*"))]
    suffixes = {"", ".py", ".sh", ".yaml"}
    code = "\n".join(file.read_text("utf-8") for file in files if file.suffix in suffixes)
    known = {*re.findall(r"INFEED_\w+", code)}
    named = {name for page in PAGES for name in re.findall(r"INFEED_\w+", text(page))}
    assert len(named) > 10
    assert named - known == set()


def test_commands_that_a_verdict_advises_exist():
    advised = re.findall(r"\binfeed ([a-z]+)", " ".join(cause._ADVICE.values()))
    assert "profile" in advised
    for command in advised:
        assert re.search(rf"^\W+{command}\b", help_text(), re.MULTILINE), command


def test_top_is_given_a_control_plane() -> None:
    given = {
        address
        for page in PAGES
        for address in re.findall(r"infeed top ([^-`\s][^`\s]*)", text(page))
    }
    assert "127.0.0.1:7471" in given
    for item in given:
        ControlPlane.parse(item)


# --- installation ---
