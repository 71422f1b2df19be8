"""The command `infeed init`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.prompt import IntPrompt

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
            help="Local data: a folder of images, TFRecords, ArrayRecords, WebDataset tars, "
            "Parquet, arrays or Megatron's .idx, such a file or a glob in quotes; a folder of MDS, "
            "of TensorFlow Datasets or of Hugging Face's save_to_disk; or a CSV of labels."
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

    It reads names, headers of images, the first records of files, and arrays.
    It overwrites no file without --force, and never a file of labels of yours.

    \b
    Examples:
      infeed init data/photos
      infeed init data/photos --labels data/table.csv:breed
      infeed init 'data/train-*.tfrecord' --output records.yaml
      infeed init 'data/train-*.tar'
      infeed init data/digits.npz --output -
    """
    set_up_logging()
    defer_tensorflow()
    file = Path("pipelines.yaml" if output == _STDOUT else output)
    starter, labels = _starter(path, file, output, labels)
    chosen = f" --labels {shlex.quote(labels)}" if labels else ""
    shown = shlex.quote(str(file))
    text = starter.text(f"infeed init {shlex.quote(path)}{chosen}", shown)
    if output == _STDOUT:
        if starter.files:
            raise ConfigError(
                f"--output -: {', '.join(starter.files)} must be written beside the pipelines; "
                "give --output a file"
            )
        typer.echo(text, nl=False)
        return
    targets = {file: text, **{file.parent / name: made for name, made in starter.files.items()}}
    for target in targets:
        _check_target(target, force)
    for target, content in targets.items():
        target.write_text(content, encoding="utf-8")
    for line in (
        *starter.label_lines(),
        f"written: {', '.join(map(str, targets))}",
        f"next: infeed check {shown} --scan",
        f"then: infeed serve {shown}",
    ):
        print_line(console, line)


def _starter(path: str, file: Path, output: str, labels: str | None) -> tuple[Starter, str | None]:
    """Returns the starter, and the labels that were chosen, on a terminal by a question. Raises
    `ConfigError` with the commands that choose them."""
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
            print_line(console, f"{error.message}:")
            for number, (option, text) in enumerate(error.options, 1):
                print_line(console, f"  {number}  {printable(option)}  ({printable(text)})")
            numbers = [str(number) for number in range(1, len(error.options) + 1)]
            number = IntPrompt.ask("number", console=console, choices=numbers)
            labels, _ = error.options[number - 1]


def _is_interactive() -> bool:
    return sys.stdin.isatty() and console.is_terminal


def _check_target(path: Path, force: bool) -> None:
    """Raises `ConfigError` for a file that exists, unless `force` may overwrite it."""
    if not os.path.lexists(path):
        return
    if not force:
        raise ConfigError(
            f"{path} exists already; --force overwrites it, --output writes another file", file=path
        )
