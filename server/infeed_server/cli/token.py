"""The command `infeed token`."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from infeed.cli import SERVE
from infeed_server.cli.console import console
from infeed_server.cli.logs import set_up_logging

app = typer.Typer()


@app.command(rich_help_panel=SERVE)
def token(
    name: Annotated[
        str, typer.Argument(help="Owner of the token, as named in messages and the log.")
    ],
    pipelines: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            help="Name or pattern of the pipelines that it may read; repeatable. Default: all.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When it expires: a duration from now, such as 12h, 30d or 8w, or a date or "
            "time in UTC, such as 2027-06-30. Default: never.",
        ),
    ] = None,
) -> None:
    """Makes a bearer token, and the entry for it in the file of `infeed serve --tokens`.

    \b
    Examples:
      infeed token alice --pipeline 'photos-*'
      infeed token bob --expires 30d
    """
    set_up_logging()
    from infeed_server.serving.auth import new_token, parse_expiry, token_entry

    end = None if expires is None else parse_expiry(expires, datetime.now(timezone.utc))
    secret = new_token()
    console.print("[bold]the token[/] for trainers, which you must keep secret:")
    print(secret, flush=True)
    console.print("[bold]its entry[/] under 'tokens:' in the server's file:")
    print(token_entry(secret, name, pipelines or ["*"], end), end="")
