"""Tests of `config/module_lookup.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infeed_server.config.module_lookup import explain_missing

MODULE = """
import os.path as paths
from json import loads

if not loads("1"):
    inside_if = 1
else:
    inside_else: int = 2

try:
    import nothing_of_this_name
except ImportError:
    nothing_of_this_name = None

with open(os.devnull) as opened:
    first, (second, *third) = 1, (2, 3)

def flip(sample): ...

class Outer:
    def method(self): ...

raise RuntimeError("this module was run")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    (tmp_path / "augment_lookup.py").write_text(MODULE)
    (tmp_path / "star_lookup.py").write_text("from augment_lookup import *\n")
    (tmp_path / "lazy_lookup.py").write_text("def __getattr__(name): ...\n")
    (tmp_path / "broken_lookup.py").write_text("x = 1\ndef flip(:\n")
    package = tmp_path / "package_lookup"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('the package was run')\n")
    (package / "inner.py").write_text("flip = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *(f"augment_lookup:{each}" for each in ("paths", "loads", "inside_if", "inside_else")),
        *(f"augment_lookup:{each}" for each in ("nothing_of_this_name", "opened", "first")),
        *(f"augment_lookup:{each}" for each in ("second", "third", "flip", "Outer.method")),
        *("star_lookup:anything", "lazy_lookup:anything", "package_lookup.inner:flip"),
        *("json:loads", "sys:path", "math:floor"),
    ],
)
def test_what_exists_is_found_without_running_it(name: str) -> None:
    assert explain_missing(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flip", "'flip' is not of the form module:attr"),
        ("augment_lokup:flip", "no module 'augment_lokup' (did you mean 'augment_lookup'?)"),
        ("package_lookup.outer:flip", "no module 'package_lookup.outer'"),
        ("augment_lookup.x:flip", "no module 'augment_lookup.x'"),
        (
            "augment_lookup:flop",
            "'augment_lookup' has no 'flop' (did you mean 'flip'?); it has: Outer, first, flip, ",
        ),
        ("augment_lookup:outer.method", "'augment_lookup' has no 'outer'"),
    ],
)
def test_what_is_missing_is_explained(name: str, message: str) -> None:
    assert (explain_missing(name) or "").startswith(message)


def test_syntax_error_has_its_line(folder: Path) -> None:
    message = explain_missing("broken_lookup:flip") or ""
    assert message.startswith(f"{folder}/broken_lookup.py:2: ")
