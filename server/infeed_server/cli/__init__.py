"""The server's commands, added to `infeed` by the entry point group `infeed.commands`."""

from __future__ import annotations

from collections.abc import Callable

import typer

PREPARE = "Prepare data (extra: server)"
SERVE = "Serve (extra: server)"
"""Titles of commands in `infeed --help`."""


def register(app: typer.Typer) -> None:
    """Adds the commands to the app; the entry point is this function."""
    from infeed_server.cli.cache import cache
    from infeed_server.cli.check import check
    from infeed_server.cli.commands import serve
    from infeed_server.cli.tools import demo, index, token

    panels: dict[str, tuple[Callable[..., None], ...]] = {
        PREPARE: (check, index, cache),
        SERVE: (serve, token, demo),
    }
    for panel, commands in panels.items():
        for command in commands:
            app.command(rich_help_panel=panel)(command)
