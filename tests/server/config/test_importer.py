"""Tests of `config/importer.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infeed_server.config import importer
from infeed_server.config.importer import explain_missing


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"user_code_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("class Outer:\n    inner = 3\n\ndef make():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    return name


def test_loads_from_working_directory(module: str) -> None:
    assert importer.load(f"{module}:Outer.inner") == 3


def test_import_error_inside_the_module_is_unchanged(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_bad.py").write_text("import a_package_that_is_missing\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        importer.load(f"{module}_bad:x")


# Lookup without running code.

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
        *(f"augment_lookup:{attr}" for attr in ("paths", "loads", "inside_if", "inside_else")),
        *(f"augment_lookup:{attr}" for attr in ("nothing_of_this_name", "opened", "first")),
        *(f"augment_lookup:{attr}" for attr in ("second", "third", "flip", "Outer.method")),
        *("star_lookup:anything", "lazy_lookup:anything", "package_lookup.inner:flip"),
        *("json:loads", "sys:path", "math:floor"),
    ],
)
def test_what_exists_is_found_without_running_it(folder: Path, name: str) -> None:
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
def test_what_is_missing_is_explained(folder: Path, name: str, message: str) -> None:
    assert (explain_missing(name) or "").startswith(message)


def test_syntax_error_has_its_line(folder: Path) -> None:
    message = explain_missing("broken_lookup:flip") or ""
    assert message.startswith(f"{folder}/broken_lookup.py:2: ")
