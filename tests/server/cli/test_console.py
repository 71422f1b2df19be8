"""Progress bars of commands."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from infeed_server.cli.console import StepProgress, sample_progress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_bar_of_samples_is_shown_on_a_terminal_only(is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=80, _environ={})
    with sample_progress(console, "photos", 10) as advance:
        advance(4)
        advance(2)
    if is_terminal:
        assert "scan of photos" in out.getvalue()
        assert "6/10" in out.getvalue()
    else:
        assert out.getvalue() == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_step_is_a_line_each_except_on_a_terminal(is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=80, _environ={})
    progress = StepProgress(console, "profile of p")
    progress.show("[read]")
    progress.show("1: crop")
    progress.stop()
    progress.stop()
    if is_terminal:
        assert "profile of p: 1: crop" in out.getvalue()
        assert out.getvalue().endswith("\x1b[2K")  # the line is gone
    else:
        assert out.getvalue() == "profile of p: [read]\nprofile of p: 1: crop\n"
