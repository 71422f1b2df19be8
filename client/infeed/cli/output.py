"""Output of commands: text, JSON and files, and readable reasons when a file fails."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

from infeed.shared.errors import InvalidRequestError
from infeed.shared.printable import printable, printable_lines
from infeed.shared.spec import PipelineSpec

_SAME = ("name", "batch_size", "seed", "remainder", "on_error", "fingerprint", "server_version")

_MIN_WIDTH = 120
"""Minimum line width, in characters, of a report not written to a terminal."""

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
    """Returns only the reason; the command names the file itself."""
    if isinstance(error, UnicodeDecodeError):
        return "not a text file"
    return (error.strerror or str(error)).lower()


def new_console(file: TextIO | None = None, *, width: int = _MIN_WIDTH) -> Console:
    """Returns a console for tables, on standard output unless a file is given. Outside a terminal,
    lines are at least `width` wide."""
    console = Console(file=file)
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


def print_line(console: Console, text: str) -> None:
    """Prints a server's text literally, on one line: no colours, markup or control codes."""
    print_lines(console, printable(text))


def print_lines(console: Console, text: str) -> None:
    """Prints lines without wrapping them: a path wrapped at the terminal's width cannot be
    copied."""
    console.print(printable_lines(text), highlight=False, markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2))


def write_file(option: str, path: Path, text: str, mode: str = "w") -> None:
    """Writes a file. Raises `InvalidRequestError`, which names the option that gave the path."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidRequestError(f"{option} {path}: {problem_of(error)}", file=path) from None


def spec_to_json(spec: PipelineSpec) -> dict[str, Any]:
    """Returns a pipeline's spec as `--json` prints it."""
    wire_types = {field.name: field.data_type for field in spec.wire_spec}
    return {
        **{name: getattr(spec, name) for name in _SAME},
        "source": spec.source_kind or None,
        # Resuming in constant time requires samples that can be read by index.
        "access": "indexed" if spec.guarantee.has_random_access else "sequential",
        "engine": spec.engine.replace("_", "-"),
        "samples": spec.sample_count,
        "fields": [
            {
                "name": field.name,
                "data_type": field.data_type,
                "shape": list(field.shape),
                "sent_as": wire_types.get(field.name),
            }
            for field in spec.element_spec
        ],
        "classes": {name: list(names) for name, names in spec.classes.items()},
        "finish_transforms": list(map(str, spec.finish_transforms)),
        "shuffle": spec.shuffle_mode or None,
        "guarantee": asdict(spec.guarantee),
    }
