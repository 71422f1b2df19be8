"""Tests of `config/code_digest.py`: it changes with the code that a function can run."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed_server.config.code_digest import _local_modules, code_digest

FILES = {
    "main_module.py": "import beside\nfrom parts import inner\n\ndef make():\n    pass\n",
    "beside.py": "import json, numpy, tensorflow.io, infeed.errors\nimport circular\n",
    "circular.py": "import main_module\n",
    "parts/__init__.py": "value = 1\n",
    "parts/inner.py": "from . import sibling\nfrom .deep.leaf import x\n",
    "parts/sibling.py": "from ..above import x\n",
    "parts/deep/__init__.py": "",
    "parts/deep/leaf.py": "def f():\n    from .. import late\nx = 1\n",
    "parts/late.py": "raise RuntimeError('not to be imported')\n",
    "parts/unused.py": "",
    "unused.py": "",
}
USED = [name for name in FILES if "unused" not in name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def digest(folder: Path) -> Any:
    """Returns the digest of `main_module:make`, whose modules are not imported."""

    def digest(folder: Path = folder) -> str:
        importlib.invalidate_caches()
        namespace: dict[str, Any] = {"__name__": "main_module"}
        file = folder / "main_module.py"
        body = file.read_text().partition("\n\n")[2]
        exec(compile(body, str(file), "exec"), namespace)
        return code_digest(namespace["make"])

    return digest


@pytest.mark.parametrize("name", USED)
def test_it_changes_with_each_local_module(
    folder: Path, digest: Callable[[], str], name: str
) -> None:
    before = digest()
    assert digest() == before
    file = folder / name
    file.write_text(file.read_text() + "# changed\n")
    assert digest() != before
    file.write_text(FILES[name])
    assert digest() == before


def test_it_does_not_change_with_other_modules(folder: Path, digest: Callable[[], str]) -> None:
    before = digest()
    for name in ("unused.py", "parts/unused.py"):
        (folder / name).write_text("changed = True\n")
    assert digest() == before


def test_installed_modules_are_left_out(
    digest: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest()
    other = tmp_path / "other-environment" / "site-packages"
    other.mkdir(parents=True)
    (other / "from_elsewhere.py").write_text("import beside\n")
    monkeypatch.syspath_prepend(other)
    assert not _local_modules(b"import from_elsewhere", "")
    assert not {"beside", "circular", "parts"} & sys.modules.keys()
    modules = _local_modules(FILES["beside.py"].encode(), "")
    assert "circular" in modules
    assert not {"json", "numpy", "tensorflow", "infeed"} & {
        name.partition(".")[0] for name in modules
    }


def test_digest_of_a_module_includes_its_relative_imports(folder: Path) -> None:
    package = folder / "relative"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "beneath.py").write_text("x = 1\n")
    (package / "above.py").write_text("from . import beneath\n")
    module = importlib.import_module("relative.above")
    before = code_digest(module)
    (package / "beneath.py").write_text("x = 2\n")
    assert code_digest(module) != before


def test_digest_is_independent_of_the_folder(
    folder: Path, digest: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest()
    moved = folder.rename(folder.parent / "elsewhere")
    monkeypatch.setattr(sys, "path", [str(moved), *sys.path])
    assert digest(moved) == before


def test_it_changes_with_modules_in_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digests(number: int) -> list[str]:
        archive = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("in_zip.py", f"value = {number}\n")
            file.writestr("zipped_main.py", "import in_zip\n\ndef make():\n    pass\n")
        main = tmp_path / "unzipped_main.py"
        main.write_text("import in_zip\n\ndef make():\n    pass\n")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(archive), str(tmp_path), *sys.path])
            modules = [importlib.import_module(f"{name}_main") for name in ("zipped", "unzipped")]
            found = [code_digest(module.make) for module in modules]
        for name in ("in_zip", "zipped_main", "unzipped_main"):
            del sys.modules[name]
        return found

    first, second = digests(1), digests(2)
    assert first[0] != second[0]
    assert first[1] != second[1]
