"""The command `infeed top`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from infeed.cli import LOOK
from infeed.cli.connection import Connection
from infeed.cli.model_options import with_models
from infeed.cli.output import new_console, print_json
from infeed.shared.arguments import check_seconds
from infeed.shared.errors import ConfigError, ProtocolError, ServerUnavailableError
from infeed_tools.top.control_plane import ControlPlane
from infeed_tools.top.status_view import status_view

_MIN_WIDTH = 160
"""Characters of a line outside a terminal: enough for the tables."""


app = typer.Typer()


@app.command(rich_help_panel=LOOK)
@with_models
def top(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SERVER",
            help="A server's host:port or unix:path, or its control plane's URL.",
        ),
    ],
    connection: Connection,
    once: Annotated[
        bool, typer.Option("--once", help="Print the status once, like outside a terminal.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON of /api/v1/status once.")
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds between updates.")
    ] = 1.0,
) -> None:
    """Shows a server's verdict, pipelines and trainers, live until Ctrl-C.

    Exit status: 0, or 1 if the server does not answer at first.

    \b
    Examples:
      infeed top http://127.0.0.1:7471
      infeed top 127.0.0.1:7470 --json
      infeed top https://host-a:7471 --tls-ca ca.pem --token-file token
    """
    interval = max(0.1, check_seconds("--interval", interval))
    control, status = _open(target, connection)
    console = new_console(width=_MIN_WIDTH)
    if as_json:
        print_json(status)
        return
    if not once and console.is_terminal:
        with contextlib.suppress(KeyboardInterrupt):
            watch(console, control, status, interval)
    console.print(_view(control, status, console.width), highlight=False)


def _open(target: str, connection: Connection) -> tuple[ControlPlane, dict[str, Any]]:
    """Returns a server's control plane, given its own address or the one for trainers, and the
    status."""
    arguments = {"tls": None, "token": None, **connection.arguments()}
    try:
        control = ControlPlane.parse(target, **arguments)
        return control, control.status()
    except (ConfigError, ProtocolError):
        control_of_server = None if "//" in target else ControlPlane.of_server(target, **arguments)
        if control_of_server is None:
            raise
        return control_of_server, control_of_server.status()


def watch(
    console: Console,
    control: ControlPlane,
    status: dict[str, Any],
    interval: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shows the status until `KeyboardInterrupt`, updating `status` in place.

    Keeps the last status while the server does not answer.
    """
    view = _view(control, status, console.width)
    with Live(view, console=console, screen=True, auto_refresh=False) as live:
        while True:
            sleep(interval)
            note = ""
            try:
                new = control.status()
            except (ServerUnavailableError, ProtocolError) as error:
                note = f"showing the last figures: {error}"
            else:
                status.clear()
                status.update(new)
            live.update(_view(control, status, console.width, note), refresh=True)


def _view(control: ControlPlane, status: dict[str, Any], width: int, note: str = "") -> Any:
    """Returns the tables. Raises `ProtocolError` if the document is from another version."""
    try:
        return status_view(control.url, status, width, note)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise ProtocolError(
            f"{control.url}: this version of infeed cannot read its /api/v1/status "
            f"({type(problem).__name__}: {problem}); use the server's version, or --json",
            target=control.url,
        ) from None
