"""Check that the selected files, folders and tests exist.

Without it, workers of pytest-xdist collect nothing, and the run has no error.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Raises `pytest.UsageError` for a path that does not exist."""
    is_selection = config.args_source is pytest.Config.ArgsSource.ARGS
    if not is_selection or hasattr(config, "workerinput"):
        return
    for argument in config.args:
        file, *names = argument.partition("[")[0].split("::")
        path = config.invocation_params.dir / file
        if not path.exists():
            raise pytest.UsageError(f"no file or folder {argument}; {_available(path)}")
        if names:
            _require_name(path, names[0])


def _require_name(file: Path, name: str) -> None:
    """Raises `pytest.UsageError` if the text of a file has no such name.

    A test can also be imported or assigned, and a test of a class inherited: those are not checked.
    """
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if not re.search(rf"\b{re.escape(name)}\b", text):
        known = re.findall(r"^(?:async )?(?:def|class) ([Tt]est\w+)", text, re.MULTILINE)
        raise pytest.UsageError(f"no test {name} in {file.name}, which has: {', '.join(known)}")


def _available(path: Path) -> str:
    """Returns the names in the nearest existing folder of a path."""
    folder = next(each for each in path.parents if each.is_dir())
    names = sorted(
        each.name
        for each in folder.iterdir()
        if each.name.startswith("test_") or (each.is_dir() and each.name.isidentifier())
    )
    return f"{folder} has: {', '.join(name for name in names if name != '__pycache__')}"
