"""The command line `infeed`: the client's commands, and the commands of installed packages.

Other packages add their commands through the entry point group `infeed.commands`, so that the
client does not import them.
"""

from __future__ import annotations

import errno
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import infeed
from infeed.shared.errors import InfeedError
from infeed.shared.printable import printable_lines

if TYPE_CHECKING:
    import typer

LOOK = "Look at servers"
"""The title of the client's commands in `infeed --help`."""


def main() -> None:
    """Runs a command; prints the mistake of a user as one message, with exit status 1."""
    try:
        try:
            import typer  # noqa: F401, PLC0415 - not in the light install
        except ImportError:
            sys.exit(
                "error: the command line needs the package 'typer', which is not installed: "
                "pip install 'infeed[server]', or 'infeed[cli]' where no data is served"
            )
        try:
            new_app()()
        except SystemExit:
            _write_output()
            raise
    except InfeedError as error:
        sys.exit(f"error: {printable_lines(str(error))}")
    except ModuleNotFoundError as error:
        if (error.name or "infeed").startswith("infeed"):
            raise
        sys.exit(
            f"error: this command needs the package {error.name!r}, which is not installed: "
            "pip install 'infeed[server]'"
        )
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:  # standard output is full
            raise
        if error.filename is None:
            sys.stdout = None  # the interpreter would try again
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"error: {where}{(error.strerror or str(error)).lower()}")
    except KeyboardInterrupt:
        sys.exit(130)


def _write_output() -> None:
    """Writes what standard output has in memory; ends the command with status 1 if that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # the interpreter would try again
        text = (error.strerror or str(error)).lower()
        sys.exit(1 if error.errno == errno.EPIPE else f"error: {text}")
    except (AttributeError, ValueError):  # there is none, or the user's code has closed it
        pass


def new_app() -> typer.Typer:
    """Returns the command line with every command that the installed packages have."""
    import typer  # noqa: PLC0415 - not in the light install

    # These import Typer too.
    from infeed.cli.audit import audit  # noqa: PLC0415
    from infeed.cli.list import list_pipelines  # noqa: PLC0415
    from infeed.cli.loadtest import loadtest  # noqa: PLC0415
    from infeed.cli.peek import peek  # noqa: PLC0415
    from infeed.cli.top import top  # noqa: PLC0415

    app = typer.Typer(
        name="infeed",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="infeed COMMAND --help has the options and examples of a command.",
    )

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"infeed {infeed.__version__}")
            raise typer.Exit

    version = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Show the version and exit."
    )

    @app.callback(help="Ready-to-train batches over gRPC.")
    def with_version(_version: bool = version) -> None:
        """Does nothing: the callback of the option has ended the command."""

    app.command("list", rich_help_panel=LOOK)(list_pipelines)
    for function in (peek, top, audit, loadtest):
        app.command(rich_help_panel=LOOK)(function)
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
        app.info.epilog = "The server's commands need: pip install 'infeed[server]'"
