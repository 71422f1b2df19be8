"""Last line of a test run: counts by outcome, deselected slow tests, and the duration."""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping
from typing import Any

import pytest

OUTCOMES = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
"""In the order of the line."""

_SLOW_LEFT = "infeed_slow_tests_left"


def final_line(
    ran: int,
    outcomes: Mapping[str, int],
    selected: list[str],
    slow_left: int | None,
    seconds: float,
) -> str:
    """Returns the line of a run of the `selected` paths; an empty list means all.

    `slow_left` is None for an interrupted run, whose workers have not reported it.
    """
    counts = ", ".join(
        _format_count(name, outcomes[name]) for name in OUTCOMES if outcomes.get(name)
    )
    where = f" of {' '.join(selected)}" if selected else ""
    minutes, rest = divmod(round(seconds), 60)
    duration = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    run = f"ran {ran:,} {'test' if ran == 1 else 'tests'}{where} in {duration}"
    if slow_left is None:
        return f"interrupted: {run}: {counts or 'none had ended'}"
    left = f"slow ones left to `make test-all`: {slow_left or 'none'}"
    return f"{run}: {counts or 'none was found'}; {left}"


def _format_count(outcome: str, count: int) -> str:
    return f"{count:,} {'errors' if outcome == 'error' and count > 1 else outcome}"


class FinalLine:
    """Writes the line after the output of pytest."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._slow_left = 0
        self._interrupted = False

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._slow_left += sum(item.get_closest_marker("slow") is not None for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Each xdist worker collects, and deselects, the same tests.
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        self._slow_left = max(self._slow_left, output.get(_SLOW_LEFT, 0))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_SLOW_LEFT] = self._slow_left

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or hasattr(config, "workerinput") or config.option.collectonly:
            return
        reports = {name: reporter.getreports(name) for name in OUTCOMES}
        # One test can have two outcomes: it can pass, and fail in its teardown.
        ran = len({report.nodeid for each in reports.values() for report in each})
        outcomes = {name: len(each) for name, each in reports.items()}
        is_selection = config.args_source is pytest.Config.ArgsSource.ARGS
        selected = config.args if is_selection else []
        seconds = time.monotonic() - self._begin
        slow_left = None if self._interrupted else self._slow_left
        # At exit, after the captured output of conftest files, such as TensorFlow's log lines.
        line = final_line(ran, outcomes, selected, slow_left, seconds)
        atexit.register(print, line, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FinalLine(), "infeed_final_line")
