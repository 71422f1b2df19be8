"""The server's commands, added to `infeed` by the entry point group `infeed.commands`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the commands to the app; the entry point is this function."""
    from infeed_server.cli.commands import demo, index, serve, token
    from infeed_server.cli.data_service import dispatcher, worker

    for command in (serve, dispatcher, worker, index, token, demo):
        app.command()(command)
