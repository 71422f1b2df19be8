"""Order of test files by measured duration, longest first, for pytest-xdist.

`--dist loadfile` assigns files to workers in the order of collection. A long file at the end would
run alone for minutes, while the other workers are idle. `make durations` measures the seconds in
`durations.json`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

DURATIONS = "tests/harness/hooks/durations.json"
"""Path from pytest's root folder."""

MIN_SECONDS = 0.5
"""Seconds: shorter durations are not saved; less, and every run would change the file."""

DEFAULT_SECONDS = 1.0
"""Seconds of a file without an entry; less, and a new file would start last."""


def load(root: Path) -> dict[str, float]:
    """Returns the measured seconds by key, empty without a file."""
    path = root / DURATIONS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(measured: Mapping[str, float], root: Path) -> None:
    """Merges the durations into the file, and drops the entries of files that do not exist."""
    merged = {**load(root), **{key: round(seconds, 1) for key, seconds in measured.items()}}
    kept = {
        key: seconds
        for key, seconds in sorted(merged.items())
        if seconds >= MIN_SECONDS and (root / key.partition("::")[0]).exists()
    }
    (root / DURATIONS).write_text(json.dumps(kept, indent=2) + "\n")


class LongestFirst:
    """Sorts the tests of an xdist worker; xdist requires the same order in all workers."""

    @pytest.hookimpl(trylast=True)  # after the selection by marker
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        measured = load(config.rootpath)
        keys: dict[str, set[str]] = defaultdict(set)
        for item in items:
            keys[_file(item)].add(_key(item.nodeid, slow="slow" in item.keywords))
        seconds = {
            file: sum(measured.get(key, 0.0) for key in keys[file]) or DEFAULT_SECONDS
            for file in keys
        }
        items.sort(key=lambda item: (-seconds[_file(item)], _file(item)))


class Recorder:
    """Sums the durations of a run, and saves them at its end if every test passed."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_key(report.nodeid, slow="slow" in report.keywords)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            save(self._seconds, session.config.rootpath)


def _key(nodeid: str, *, slow: bool) -> str:
    """Returns a test's file, or a slow test itself, since only some runs select slow tests."""
    return nodeid if slow else nodeid.partition("::")[0]


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations",
        action="store_true",
        help=f"write the seconds of each test file to {DURATIONS}; name whole files only",
    )


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(LongestFirst())
    elif config.getoption("--write-durations"):
        config.pluginmanager.register(Recorder())
