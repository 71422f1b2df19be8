"""Order of test files by measured duration, longest first, for pytest-xdist.

`--dist loadfile` hands a worker its next file in the order of collection. A long file at the end
of that order runs alone for minutes while the other workers are idle; a short one does not.
`durations.json` holds the seconds, and `make durations` measures them again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

DURATIONS = "tests/plugins/durations.json"
"""Below pytest's root folder."""

MIN_SECONDS = 0.5
"""Shorter entries are not kept: they do not matter for the order, and would change every time."""

DEFAULT_SECONDS = 1.0
"""Assumed for a file without an entry, so that a new one does not begin last."""


def entry(nodeid: str, *, slow: bool) -> str:
    """Returns the key of a test: its own for a slow one, which only some runs select, else its
    file's."""
    return nodeid if slow else nodeid.partition("::")[0]


def expected_seconds(entries: Iterable[str], measured: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds of each file whose tests have these keys."""
    keys: dict[str, set[str]] = defaultdict(set)
    for key in entries:
        keys[key.partition("::")[0]].add(key)
    return {
        file: sum(measured.get(key, 0.0) for key in keys[file]) or DEFAULT_SECONDS for file in keys
    }


def load(root: Path) -> dict[str, float]:
    """Returns the measured seconds by key; none where nothing was measured yet."""
    path = root / DURATIONS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(measured: Mapping[str, float], root: Path) -> None:
    """Writes the durations over the earlier ones; those of files that are gone are dropped."""
    merged = {**load(root), **{key: round(seconds, 1) for key, seconds in measured.items()}}
    kept = {
        key: seconds
        for key, seconds in sorted(merged.items())
        if seconds >= MIN_SECONDS and (root / key.partition("::")[0]).exists()
    }
    (root / DURATIONS).write_text(json.dumps(kept, indent=2) + "\n")


class LongestFirst:
    """Sorts the tests of an xdist worker. Every worker has to arrive at the same order."""

    @pytest.hookimpl(trylast=True)  # behind the selection by marker
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        keys = [_entry_of(item) for item in items]
        seconds = expected_seconds(keys, load(config.rootpath))
        items.sort(key=lambda item: -seconds[item.nodeid.partition("::")[0]])


class Recorder:
    """Sums the durations of a run, and writes them at its end."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        key = entry(report.nodeid, slow="slow" in report.keywords)
        self._seconds[key] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            save(self._seconds, session.config.rootpath)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        done = exitstatus == pytest.ExitCode.OK
        terminalreporter.write_line(
            f"{DURATIONS} has the durations of these files"
            if done
            else f"{DURATIONS} is as it was: not every test passed"
        )


def _entry_of(item: pytest.Item) -> str:
    return entry(item.nodeid, slow=item.get_closest_marker("slow") is not None)


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
        if parts := [word for word in config.args if "::" in word]:
            raise pytest.UsageError(
                f"--write-durations measures whole files, and {parts[0]} is a part of one"
            )
        config.pluginmanager.register(Recorder())
