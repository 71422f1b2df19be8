"""The command `infeed init`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infeed.shared.errors import ConfigError
from infeed.shared.printable import printable
from infeed_server.cli.console import console, print_line
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow

if TYPE_CHECKING:
    from infeed_server.starter.draft import Starter

_STDOUT = "-"


def init(
    path: Annotated[
        str,
        typer.Argument(
            help="A folder of images, TFRecords, Parquet or arrays, such a file, a glob, or a CSV "
            "of labels."
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write; '-' is standard output.")
    ] = "pipelines.yaml",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="Labels of images: a CSV and the name of its column, or 'folders' or 'none'. "
            "Default: class folders, else the one column of a CSV that is clearly the label.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the output, and what init wrote beside it."),
    ] = False,
) -> None:
    """Looks at data and writes a commented pipelines.yaml that serves it.

    It reads names, headers of images, and the first records of files. It
    overwrites no file without --force, and never a file of labels of yours.

    \b
    Examples:
      infeed init data/photos
      infeed init data/photos --labels data/table.csv:breed
      infeed init 'data/train-*.tfrecord' --output records.yaml
      infeed init data/digits.npz --output -
    """
    set_up_logging()
    defer_tensorflow()
    file = Path("pipelines.yaml" if output == _STDOUT else output)
    starter, labels = _starter(path, file, output, labels)
    chosen = f" --labels {shlex.quote(labels)}" if labels else ""
    text = starter.text(f"infeed init {shlex.quote(path)}{chosen}", shlex.quote(str(file)))
    if output == _STDOUT:
        if starter.files:
            raise ConfigError(
                f"--output -: {', '.join(starter.files)} must be written beside the pipelines; "
                "give --output a file"
            )
        typer.echo(text, nl=False)
        return
    beside = {file.parent / name: content for name, content in starter.files.items()}
    _check_targets(file, list(beside), force)
    for target, content in {file: text, **beside}.items():
        _write(target, content)
    shown = shlex.quote(str(file))
    for line in (
        *starter.label_lines(),
        f"written: {', '.join(map(str, [file, *beside]))}",
        f"next: infeed check {shown} --scan",
        f"then: infeed serve {shown}",
    ):
        print_line(console, line)


def _starter(path: str, file: Path, output: str, labels: str | None) -> tuple[Starter, str | None]:
    """Returns the starter, and the labels that were chosen, on a terminal by a question.

    Raises `ConfigError` with the commands that choose them.
    """
    from infeed_server.starter.detect import starter_for
    from infeed_server.starter.labels import UnclearLabelsError

    while True:
        try:
            return starter_for(path, file.parent, labels), labels
        except UnclearLabelsError as error:
            if not _is_interactive():
                given = "" if output == "pipelines.yaml" else f" --output {shlex.quote(output)}"
                commands = [
                    f"  infeed init {shlex.quote(path)}{given} --labels {shlex.quote(option)}"
                    f"  # {printable(text)}"
                    for option, text in error.options
                ]
                raise ConfigError("\n".join([f"{error.message}:", *commands])) from None
            labels = _ask(error.message, error.options)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and console.is_terminal


def _ask(question: str, options: Sequence[tuple[str, str]]) -> str:
    """Returns the value of `--labels` that is chosen by its number."""
    print_line(console, f"{question}:")
    for number, (option, text) in enumerate(options, 1):
        print_line(console, f"  {number}  {printable(option)}  ({printable(text)})")
    chosen = 0
    while not 1 <= chosen <= len(options):
        chosen = typer.prompt(f"number from 1 to {len(options)}", type=int, err=True)
    option, _ = options[chosen - 1]
    return option


def _check_targets(file: Path, beside: Sequence[Path], force: bool) -> None:
    """Raises `ConfigError` for a file that exists, unless `force` may overwrite it."""
    for path in beside:
        if os.path.lexists(path) and not _is_written_by_init(path):
            raise ConfigError(
                f"{path} exists already, and infeed init did not write it; move it, or give "
                "--output a file in another folder",
                file=path,
            )
    existing = [path for path in (file, *beside) if os.path.lexists(path)]
    if existing and not force:
        raise ConfigError(
            f"{existing[0]} exists already; --force overwrites it, --output writes another file",
            file=existing[0],
        )


def _is_written_by_init(file: Path) -> bool:
    from infeed_server.starter.draft import WRITTEN_LABELS, WRITTEN_MODULE

    if file.name.endswith(WRITTEN_LABELS):
        return True
    return file.is_file() and WRITTEN_MODULE in file.read_text(encoding="utf-8", errors="replace")


def _write(file: Path, text: str) -> None:
    """Raises `ConfigError`."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", file=file) from None
