"""The command line `infeed`: the client's commands, and those of installed packages.

The server adds its commands through the entry point group `infeed.commands`, so that the client
does not import the server.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from infeed.errors import InfeedError

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Runs a command; prints an `InfeedError` as one message, with exit status 1."""
    try:
        import typer  # noqa: F401, PLC0415 - not in the light install
    except ImportError:
        sys.exit("the command line needs two more packages: pip install 'infeed[cli]'")
    app = new_app()
    try:
        app()
    except InfeedError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def new_app() -> typer.Typer:
    """Returns the command line with every command that the installed packages have."""
    import typer  # noqa: PLC0415 - not in the light install

    # These import Typer too.
    from infeed.cli.audit import audit  # noqa: PLC0415
    from infeed.cli.peek import peek  # noqa: PLC0415

    app = typer.Typer(
        name="infeed",
        help="Ready-to-train batches over gRPC.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(lambda: None)
    app.command()(peek)
    app.command()(audit)
    for command in entry_points(group="infeed.commands"):
        _add_commands(app, command)
    return app


def _add_commands(app: typer.Typer, command: EntryPoint) -> None:
    """Adds a package's commands, or a line about the extra that they need to the help."""
    try:
        command.load()(app)
    except ImportError as error:
        if (error.name or "").startswith("infeed"):
            raise
        name = command.name
        app.info.epilog = f"The {name}'s commands need: pip install 'infeed[{name}]'"
