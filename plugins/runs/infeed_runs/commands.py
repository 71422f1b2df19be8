"""The commands of the order of the data: `infeed what`, `when`, `replay`, `amend` and `diff`."""

from __future__ import annotations

import typer

from infeed_runs.change.amend_command import amend
from infeed_runs.change.diff_command import diff
from infeed_runs.look.replay import replay
from infeed_runs.look.what import what
from infeed_runs.look.when import when


def register(app: typer.Typer) -> None:
    """Adds the commands to the app; the entry point is this function."""
    for command in (what, when, replay, amend, diff):
        app.command(rich_help_panel="Order of the data")(command)
