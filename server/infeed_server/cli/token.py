"""The command `infeed token`."""

from __future__ import annotations

from typing import Annotated

import typer

from infeed_server.cli.console import console
from infeed_server.cli.logs import set_up_logging


def token(
    name: Annotated[str, typer.Argument(help="Name of its owner, for messages and the log.")],
    pipelines: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline", help="Name or pattern of pipelines it may read; can be repeated."
        ),
    ] = None,
) -> None:
    """Makes a bearer token, and its entry for the file of `infeed serve --tokens`.

    \b
    Example:
      infeed token alice --pipeline 'photos-*'
    """
    set_up_logging()
    from infeed_server.serving.auth import new_token, token_entry

    secret = new_token()
    console.print("[bold]the token[/], for trainers, to be kept secret:")
    print(secret, flush=True)
    console.print("[bold]its entry[/], under 'tokens:' in the server's file:")
    print(token_entry(secret, name, pipelines or ["*"]), end="")
