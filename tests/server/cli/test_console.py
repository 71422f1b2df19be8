"""Progress bars of commands, and the panel of a server on a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from infeed_server.cli import console
from infeed_server.control.health import Readiness


@pytest.mark.parametrize("is_terminal", [True, False])
def test_bar_of_samples_is_shown_on_a_terminal_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=is_terminal, width=80, _environ={})
    monkeypatch.setattr(console, "console", terminal)
    with console.sample_progress("photos", 10) as advance:
        advance(4)
        advance(2)
    if is_terminal:
        assert "scan of photos" in out.getvalue()
        assert "6/10" in out.getvalue()
    else:
        assert out.getvalue() == ""


def show(names: list[str], unready: dict[str, str]) -> list[str]:
    specs = [SimpleNamespace(name=name, sample_count=1234567, batch_size=64) for name in names]
    specs[0].sample_count = None
    states = {
        name: Readiness(name not in unready, unready.get(name, "its first batch is made"))
        for name in names
    }
    server: Any = SimpleNamespace(
        address="127.0.0.1:7470",
        http_address="127.0.0.1:7471",
        health=SimpleNamespace(parts=states),
        pipeline_specs=specs,
    )
    out = io.StringIO()
    Console(file=out, width=150).print(console.server_panel(server))
    return [line.strip("│ ") for line in out.getvalue().splitlines()]


def test_panel_has_what_is_served_where_and_what_is_not_ready() -> None:
    reason = "sample 7 [/data/x]: no JPEG\nTraceback"
    assert show(["a", "b"], {"b": reason})[1:-1] == [
        "trainers   127.0.0.1:7470",
        "dashboard  http://127.0.0.1:7471",
        "a  unknown samples, batches of 64, ready",
        "b  1,234,567 samples, batches of 64, not ready: sample 7 [/data/x]: no JPEG",
    ]


def test_panel_of_many_pipelines_is_short() -> None:
    lines = show([f"p{number:03}" for number in range(500)], {})
    assert len(lines) < 30
    assert "and 480 more; `infeed list` has all" in lines
