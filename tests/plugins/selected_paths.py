"""Check of the files and folders that a run selects.

A worker of pytest-xdist that does not find one collects nothing, and the run does not say why.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Raises `pytest.UsageError` for a path that does not exist."""
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS
    if not chosen or hasattr(config, "workerinput"):
        return
    for word in config.args:
        path = config.invocation_params.dir / word.partition("::")[0]
        if not path.exists():
            raise pytest.UsageError(f"no file or folder {word}; {_available(path)}")


def _available(path: Path) -> str:
    """Returns the names beside a path that does not exist."""
    folder = next(each for each in path.parents if each.is_dir())
    names = sorted(
        each.name
        for each in folder.iterdir()
        if each.name.startswith("test_") or (each.is_dir() and each.name.isidentifier())
    )
    return f"{folder} has: {', '.join(name for name in names if name != '__pycache__')}"
