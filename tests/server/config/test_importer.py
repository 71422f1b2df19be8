"""Tests of `config/importer.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.config import importer


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"user_code_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("class Outer:\n    inner = 3\n\ndef make():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    return name


def test_loads_from_working_directory(module: str) -> None:
    assert importer.load(f"{module}:Outer.inner") == 3


def test_missing_attribute_lists_available_ones(module: str) -> None:
    with pytest.raises(ConfigError, match=r"has no 'mak'; it has: Outer, make"):
        importer.load(f"{module}:mak")


@pytest.mark.parametrize("name", ["", "module", "module:", ":attr"])
def test_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not of the form module:attr"):
        importer.load(name)


def test_missing_module_is_refused() -> None:
    with pytest.raises(ConfigError, match="no module 'no_such_module_at_all'"):
        importer.load("no_such_module_at_all:x")


def test_import_error_inside_the_module_is_unchanged(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_bad.py").write_text("import a_package_that_is_missing\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        importer.load(f"{module}_bad:x")
