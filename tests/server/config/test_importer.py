"""Tests of `config/importer.py`."""

from __future__ import annotations

import pickle
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


def written(folder: Path, name: str, value: int) -> importer.CodeName:
    """Writes a module with a helper beside it; returns its name there."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(f"from {name}_helper import value\n")
    (folder / f"{name}_helper").mkdir()
    (folder / f"{name}_helper/__init__.py").write_text(f"value = {value}\n")
    return importer.CodeName(f"{name}:value", folder)


def test_modules_of_one_name_in_two_folders_are_two(tmp_path: Path, module: str) -> None:
    first, second = (written(tmp_path / str(n), f"{module}_twice", n) for n in range(2))
    for _ in range(2):
        loaded = []
        for name in (first, second, pickle.loads(pickle.dumps(first))):
            loaded.append(importer.load(name))
            assert Path(sys.modules[f"{module}_twice"].__file__ or "").parent == name.folder
        assert loaded == [0, 1, 0]


def test_module_may_import_later_in_a_thread_while_it_is_imported(
    tmp_path: Path, module: str
) -> None:
    name = written(tmp_path / "thread", f"{module}_thread", 3)
    (name.folder / f"{module}_thread.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        f"def late(_):\n    from {module}_thread_helper import value\n    return value\n"
        "with ThreadPoolExecutor(2) as pool:\n    (value,) = pool.map(late, [0])\n"
    )
    assert importer.load(name) == 3


@pytest.mark.parametrize("name", ["queue", "pdb", "tensorflow", "sys"])
def test_no_module_takes_the_place_of_another(tmp_path: Path, module: str, name: str) -> None:
    own = tmp_path / f"{name}.py"
    own.write_text("raise SystemExit('not this one')\ndef make(): ...\n")
    assert importer.load(f"{module}:Outer.inner") == 3
    assert importer.find_spec(name) is not None
    assert importer.find_spec(name).origin != str(own)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=rf"named '{name}': {own} and .*; rename"):
        importer.load(f"{name}:make")
