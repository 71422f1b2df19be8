"""Last line of a test run: what ran, what was left to `make test-all`, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

OUTCOMES = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
"""In the order in which they are reported."""

_LEFT = "infeed_slow_tests_left"


def final_line(
    ran: int, outcomes: Mapping[str, int], selected: list[str], slow_left: int, seconds: float
) -> str:
    """Returns the line for a run of the `selected` paths; none selected means all."""
    counts = ", ".join(f"{outcomes[name]:,} {name}" for name in OUTCOMES if outcomes.get(name))
    where = f" of {' '.join(selected)}" if selected else ""
    left = f"slow ones left to `make test-all`: {slow_left or 'none'}"
    minutes, rest = divmod(round(seconds), 60)
    took = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"ran {ran:,} tests{where} in {took}: {counts or 'none'}; {left}"


class FinalLine:
    """Writes the line behind everything that pytest itself writes."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._slow_left = 0

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._slow_left += sum(item.get_closest_marker("slow") is not None for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Each xdist worker collects, and deselects, the same tests.
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        self._slow_left = max(self._slow_left, output.get(_LEFT, 0))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_LEFT] = self._slow_left

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or hasattr(config, "workerinput") or config.option.collectonly:
            return
        reports = {name: reporter.getreports(name) for name in OUTCOMES}
        # A test that passes and fails in its teardown has two outcomes, and is one test.
        ran = len({report.nodeid for each in reports.values() for report in each})
        outcomes = {name: len(each) for name, each in reports.items()}
        chosen = config.args_source is pytest.Config.ArgsSource.ARGS
        selected = config.args if chosen else []
        seconds = time.monotonic() - self._begin
        reporter.write_line(final_line(ran, outcomes, selected, self._slow_left, seconds))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FinalLine(), "infeed_final_line")
