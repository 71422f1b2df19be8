"""The `infeed` command line, assembled from the installed packages.

Each command is a Typer app of its own, added by the entry point of the same name in the group
`infeed.commands`.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import infeed
from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, InfeedError
from infeed.shared.printable import printable_lines

if TYPE_CHECKING:
    import typer

SERVE = "Serve (extra: server)"
PREPARE = "Prepare data (extra: server)"
LOOK = "Look at servers"
RUNS = "Order of the data"
_FAILING = "Cannot be used here"
PANELS = (SERVE, PREPARE, LOOK, RUNS)
"""Panels of `infeed --help`, in order."""

_DOOR = Door("infeed.commands", "command")


def main() -> None:
    """Runs a command; prints a user's mistake as one message and exits with status 1."""
    # Only the command that runs is imported; the help imports all of them.
    names = [name for name in _DOOR.names() if name in sys.argv[1:2]]
    try:
        try:
            import typer  # noqa: F401, PLC0415 - not in the light install
        except ImportError:
            sys.exit(
                "error: the command line needs the package 'typer', which is not installed: "
                "pip install 'infeed[server]', or 'infeed[cli]' where no data is served"
            )
        try:
            new_app(names)()
        except SystemExit:
            _write_output()
            raise
    except InfeedError as error:
        sys.exit(f"error: {printable_lines(str(error))}")
    except ModuleNotFoundError as error:
        if not names or (error.name or "infeed").startswith("infeed"):
            raise
        sys.exit(f"error: {_DOOR.lacking(names[0], error.name)}")
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
    """Flushes standard output; exits with status 1 if that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # the interpreter would try again
        text = (error.strerror or str(error)).lower()
        sys.exit(1 if error.errno == errno.EPIPE else f"error: {text}")
    except (AttributeError, ValueError):  # absent, or closed by the user's code
        pass


def new_app(names: Sequence[str] = ()) -> typer.Typer:
    """Returns the command line with these commands, or by default with all that are installed."""
    import typer  # noqa: PLC0415 - not in the light install

    app = typer.Typer(
        name="infeed",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Run infeed COMMAND --help for the options and examples of a command.",
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
        """Does nothing: the option's callback has already ended the command."""

    for command in sorted(map(_command, names or _DOOR.names()), key=_panel):
        app.add_typer(command)
    return app


def _command(name: str) -> typer.Typer:
    """Returns a command's app. If its package is broken, the app's help gives the reason, and so
    does the error when the command runs."""
    import typer  # noqa: PLC0415 - not in the light install
    from rich.markup import escape  # noqa: PLC0415

    try:
        app = _DOOR.load(name)
        if isinstance(app, typer.Typer):
            return app
        raise ConfigError(f"{_DOOR.place(name)} is not a typer.Typer, so it cannot be a command")
    except InfeedError as error:
        failing, problem = typer.Typer(), error

    takes_all = {"ignore_unknown_options": True, "allow_extra_args": True}

    @failing.command(
        name, help=escape(problem.message), context_settings=takes_all, rich_help_panel=_FAILING
    )
    def fail() -> None:
        raise problem

    return failing


def _panel(app: typer.Typer) -> int:
    """Returns the position of a command's panel in the help; other packages' panels come last."""
    titles = [command.rich_help_panel for command in app.registered_commands]
    return next((PANELS.index(title) for title in titles if title in PANELS), len(PANELS))
