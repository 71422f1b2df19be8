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


def test_import_error_inside_the_module_is_unchanged(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_bad.py").write_text("import a_package_that_is_missing\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        importer.load(f"{module}_bad:x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flip", "'flip' is not of the form module:attr"),
        ("{}x:make", "no module '{0}x' (did you mean '{0}'?)"),
        ("{}.x:make", "no module '{0}.x'"),
        ("{}:maek", "'{0}' has no 'maek' (did you mean 'make'?); it has: Outer, make"),
        ("{}:Outer.method", "'{0}' has no 'Outer.method'; it has: inner"),
    ],
)
def test_what_is_missing_is_explained(module: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        importer.load(name.format(module))
    assert caught.value.message.startswith(message.format(module))


def test_module_in_nested_namespace_packages_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "outer_space" / "inner" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importer.find_spec("outer_space.inner.module")
    assert spec is not None
    assert spec.origin == str(file)
    assert importer.find_spec("outer_space.inner.other") is None
    assert "outer_space" not in sys.modules
