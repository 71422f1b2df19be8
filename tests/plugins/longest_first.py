"""Order of test files by measured duration, longest first, for pytest-xdist.

`--dist loadfile` assigns files to workers in the order of collection. A long file at the end would
run alone for minutes, while the other workers are idle. `make durations` measures the seconds in
`durations.json`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

DURATIONS = "tests/plugins/durations.json"
"""Path from pytest's root folder."""

MIN_SECONDS = 0.5
"""Shorter durations are not saved: they do not affect the order, and change with every run."""

DEFAULT_SECONDS = 1.0
"""Duration of a file without an entry, so that a new file does not start last."""


def key_of(nodeid: str, *, slow: bool) -> str:
    """Returns a test's key: its file, or the test itself if it is slow, since only some runs select
    slow tests."""
    return nodeid if slow else nodeid.partition("::")[0]


def expected_seconds(keys: Iterable[str], measured: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds of each file whose tests have these keys."""
    keys_of: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        keys_of[key.partition("::")[0]].add(key)
    return {
        file: sum(measured.get(key, 0.0) for key in keys_of[file]) or DEFAULT_SECONDS
        for file in keys_of
    }


def load(root: Path) -> dict[str, float]:
    """Returns the measured seconds by key, empty without a file."""
    path = root / DURATIONS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(measured: Mapping[str, float], root: Path) -> None:
    """Merges the durations into the file, and drops those of files that do not exist."""
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
        keys = [_item_key(item) for item in items]
        seconds = expected_seconds(keys, load(config.rootpath))

        def rank(item: pytest.Item) -> tuple[float, str]:
            file = item.nodeid.partition("::")[0]
            return -seconds[file], file

        items.sort(key=rank)


class Recorder:
    """Sums the durations of a run, and saves them at its end."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        key = key_of(report.nodeid, slow="slow" in report.keywords)
        self._seconds[key] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            save(self._seconds, session.config.rootpath)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        is_saved = exitstatus == pytest.ExitCode.OK
        terminalreporter.write_line(
            f"{DURATIONS} has the durations of these files"
            if is_saved
            else f"{DURATIONS} is unchanged: not every test passed"
        )


def _item_key(item: pytest.Item) -> str:
    return key_of(item.nodeid, slow=item.get_closest_marker("slow") is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations",
        action="store_true",
        help=f"write the seconds of each test file to {DURATIONS}",
    )


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(LongestFirst())
    elif config.getoption("--write-durations"):
        if tests := [path for path in config.args if "::" in path]:
            raise pytest.UsageError(
                f"--write-durations measures whole files, and {tests[0]} is a part of one"
            )
        config.pluginmanager.register(Recorder())
