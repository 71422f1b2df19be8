"""Progress bars of commands."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from infeed_server.cli.console import sample_progress


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
