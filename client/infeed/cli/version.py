"""The option `infeed --version`."""

from __future__ import annotations

from typing import Annotated

import typer

import infeed


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"infeed {infeed.__version__}")
        raise typer.Exit


def with_version(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Does nothing: the callback of the option has ended the command."""
