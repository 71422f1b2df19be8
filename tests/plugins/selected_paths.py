"""Check that the selected files and folders exist.

Without it, workers of pytest-xdist collect nothing, and the run has no error.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Raises `pytest.UsageError` for a path that does not exist."""
    is_selection = config.args_source is pytest.Config.ArgsSource.ARGS
    if not is_selection or hasattr(config, "workerinput"):
        return
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if not path.exists():
            raise pytest.UsageError(f"no file or folder {argument}; {_available(path)}")


def _available(path: Path) -> str:
    """Returns the names in the nearest existing folder of a path."""
    folder = next(each for each in path.parents if each.is_dir())
    names = sorted(
        each.name
        for each in folder.iterdir()
        if each.name.startswith("test_") or (each.is_dir() and each.name.isidentifier())
    )
    return f"{folder} has: {', '.join(name for name in names if name != '__pycache__')}"
