"""Checks of docs/transport.md: its limits have the values of the code, and its names exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/transport.md").read_text(encoding="utf-8")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1}
LIMITS = re.findall(r"^\| `([\w.]+)\.(\w+)` \| (\d[\d.]*) ?(\w*)( - 1)? \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("module", "name", "number", "unit", "less"), LIMITS)
def test_limit_has_the_documented_value(
    module: str, name: str, number: str, unit: str, less: str
) -> None:
    documented = float(number) * UNITS[unit] - (1 if less else 0)
    assert getattr(importlib.import_module(module), name) == documented


def test_every_limit_is_checked() -> None:
    table = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert len(LIMITS) == table.count("\n|") - 2 > 20


def test_named_functions_are_those_of_the_code() -> None:
    first_cells = re.findall(r"^\| (`.*?) \|", h2_part(), re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", " ".join(first_cells)))
    defined = set()
    for path in ("client/infeed", "server/infeed_server"):
        code = (ROOT / path / "http2/h2_internals.py").read_text(encoding="utf-8")
        defined |= set(re.findall(r"^def ([a-z]\w*)", code, re.MULTILINE))
    assert documented == defined


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
