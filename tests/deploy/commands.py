"""Commands of infeed in the files of deploy, as the command line parses them."""

from __future__ import annotations

from typing import Any

import typer.main

from infeed.cli import new_app


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Returns the command of `infeed COMMAND ...`, and its options and arguments."""
    program, command, *rest = words
    assert program == "infeed"
    cli: Any = typer.main.get_command(new_app()).commands[command]
    with cli.make_context(command, rest) as context:
        return command, context.params


def port(address: str) -> str:
    return address.rpartition(":")[2]
