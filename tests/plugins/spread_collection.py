"""Order of collection in xdist workers: each begins with another share of the test files.

pytest rewrites the asserts of a file on its first import, and writes bytecode. In a fresh clone,
workers that import the files in the same order would all rewrite each file at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def collection_order(paths: Iterable[Path], worker: int, count: int) -> list[str]:
    """Returns the paths, from the share of a worker to the end and then from the beginning."""
    names = sorted(map(str, paths))
    begin = len(names) * (worker % count) // count
    return names[begin:] + names[:begin]


def pytest_configure(config: pytest.Config) -> None:
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if worker and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        folders = (config.rootpath / name for name in config.getini("testpaths"))
        # pytest ignores no path that is among its arguments.
        ignored = {config.rootpath / name for name in config.getoption("ignore") or ()}
        paths = [path for folder in folders for path in _parts(folder) if path not in ignored]
        number = int(worker["workerid"].removeprefix("gw"))
        config.args = collection_order(paths, number, worker["workercount"])


def _parts(folder: Path) -> list[Path]:
    """Returns the test files of a folder and of its subfolders, and the folders below those."""
    below = [path for path in folder.glob("*/*") if path.is_dir() and path.name != "__pycache__"]
    return [*folder.glob("test_*.py"), *folder.glob("*/test_*.py"), *below]
