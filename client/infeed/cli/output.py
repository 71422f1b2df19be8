"""Output of the commands: lines of text, JSON, and files, with problems in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from infeed.shared.errors import InvalidRequestError
from infeed.shared.printable import printable

JsonFile = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Also write the result to this file; with '-' only to standard output, instead of the "
        "text.",
    ),
]


def problem_of(error: OSError | UnicodeDecodeError) -> str:
    """Returns the reason alone: the command names the file itself."""
    if isinstance(error, UnicodeDecodeError):
        return "not a text file"
    return (error.strerror or str(error)).lower()


def new_console(width: int) -> Console:
    """Returns the standard output; where it is no terminal, a line has at least this width."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


def print_line(console: Console, text: str) -> None:
    """Prints text from a server as it is: one line, without colours, markup or control codes."""
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2))


def write_file(option: str, path: Path, text: str, mode: str = "w") -> None:
    """Writes a file. Raises `InvalidRequestError` with the name of the option that has its path."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidRequestError(f"{option} {path}: {problem_of(error)}", file=path) from None
