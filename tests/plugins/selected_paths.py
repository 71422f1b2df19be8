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
        for name in names:
            if name not in (known := _names(path)):
                raise pytest.UsageError(f"no test {name} in {file}, which has: {', '.join(known)}")


def _names(file: Path) -> list[str]:
    """Returns the names of a file's functions and classes, as its text has them."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return re.findall(r"^ *(?:async )?(?:def|class) ([Tt]est\w+)", text, re.MULTILINE)


def _available(path: Path) -> str:
    """Returns the names in the nearest existing folder of a path."""
    folder = next(each for each in path.parents if each.is_dir())
    names = sorted(
        each.name
        for each in folder.iterdir()
        if each.name.startswith("test_") or (each.is_dir() and each.name.isidentifier())
    )
    return f"{folder} has: {', '.join(name for name in names if name != '__pycache__')}"
