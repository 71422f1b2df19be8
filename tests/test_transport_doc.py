"""Checks of docs/transport.md: its functions and versions of h2 are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/transport.md").read_text(encoding="utf-8")


def test_named_functions_are_those_of_the_code() -> None:
    first_cells = re.findall(r"^\| (`.*?) \|", h2_part(), re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", " ".join(first_cells)))
    code = (ROOT / "client/infeed/http2/h2_internals.py").read_text(encoding="utf-8")
    assert documented == set(re.findall(r"^def ([a-z]\w*)", code, re.MULTILINE))


def test_required_versions_of_h2_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (required,) = (each for each in project["dependencies"] if each.startswith("h2"))
    pins = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^h2==(.*)$", pins, re.MULTILINE)
    assert f"`{required}`" in h2_part()
    assert pinned in h2_part().partition("Tested are ")[2].partition(". ")[0]


def h2_part() -> str:
    """Returns the section about h2."""
    return PAGE.partition("\n## h2\n")[2]
