"""Progress bars of commands, and the panel of a server on a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from infeed.shared.spec import Guarantee
from infeed_server.cli.console import StepProgress, sample_progress, server_panel
from infeed_server.control.health import Readiness


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


EXACT = Guarantee("deterministic", "exactly_once", "constant_time")


def show(names: list[str], unready: dict[str, str], width: int = 150) -> str:
    specs = [
        SimpleNamespace(name=name, sample_count=1234567, batch_size=64, guarantee=EXACT)
        for name in names
    ]
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
    Console(file=out, width=width).print(server_panel(server))
    return out.getvalue()


def test_panel_has_what_is_served_where_and_what_is_not_ready() -> None:
    reason = "its first batch fails: sample 7 [/data/x]: no JPEG\nTraceback"
    lines = [" ".join(line.split()) for line in show(["a", "b"], {"b": reason}).splitlines()]
    guarantee = "64 deterministic order, exactly once delivery, constant time resume"
    assert any("trainers 127.0.0.1:7470" in line for line in lines)
    assert any("http://127.0.0.1:7471/readyz" in line for line in lines)
    pipelines = [line.strip("│ ") for line in lines if guarantee in line]
    assert pipelines == [f"b 1,234,567 {guarantee} not ready", f"a unknown {guarantee} ready"]
    problem = "b is not ready: its first batch fails: sample 7 [/data/x]: no JPEG"
    assert problem in [line.strip("│ ") for line in lines]
    assert not any("Traceback" in line for line in lines)


def test_panel_of_many_pipelines_is_short() -> None:
    names = [f"p{number:03}" for number in range(500)]
    text = show(names, dict.fromkeys(names[300:], "the disk is gone"))
    assert len(text.splitlines()) < 36
    assert "p300 is not ready: the disk is gone" in text
    assert "and 480 more; `infeed list` has all" in text
