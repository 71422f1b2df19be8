"""Checks of docs/architecture.md: its versions of h2 are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_required_versions_of_h2_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (required,) = (name for name in project["dependencies"] if name.startswith("h2"))
    pins = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^h2==(.*)$", pins, re.MULTILINE)
    assert f"`{required}`" in h2_part()
    assert pinned in h2_part().partition("Tested are ")[2].partition(". ")[0]


def h2_part() -> str:
    """Returns the section about h2."""
    return PAGE.partition("\n### h2\n")[2]
