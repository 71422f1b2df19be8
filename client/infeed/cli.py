"""The command `infeed`: what a trainer's host can do, and what installed packages add.

The server's commands are found through the entry point group `infeed.commands`, so that this
package needs no import of that one.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from infeed.errors import InfeedError


def main() -> None:
    """Runs a command; an `InfeedError` is one message and exit status 1."""
    try:
        import typer  # noqa: PLC0415 - not in the light install
    except ImportError:
        sys.exit("the command line needs two more packages: pip install 'infeed[cli]'")
    # These need the packages just asked for.
    from infeed.commands.audit import audit  # noqa: PLC0415
    from infeed.commands.peek import peek  # noqa: PLC0415

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
        _add(app, command)
    try:
        app()
    except InfeedError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _add(app: Any, command: EntryPoint) -> None:
    """Adds a package's commands; where its extra is not installed, help says how to get them."""
    try:
        command.load()(app)
    except ImportError as error:
        if (error.name or "").startswith("infeed"):
            raise
        name = command.name
        app.info.epilog = f"The {name}'s commands need: pip install 'infeed[{name}]'"
