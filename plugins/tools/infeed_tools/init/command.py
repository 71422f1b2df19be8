"""The command `infeed init`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.prompt import IntPrompt

from infeed.cli import PREPARE
from infeed.cli.output import new_console, print_lines
from infeed.shared.errors import ConfigError
from infeed.shared.printable import printable
from infeed_server.cli.console import console
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import write_atomically

if TYPE_CHECKING:
    from infeed_tools.init.draft import Starter

_DEFAULT, _STDOUT = "pipelines.yaml", "-"


app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
def init(
    path: Annotated[
        list[str],
        typer.Argument(
            help="Path or URL of the data: a folder of images, TFRecords, ArrayRecords, WebDataset "
            "tars, Parquet, arrays or Megatron's .idx, such a file, or a glob in quotes; a folder "
            "of MDS, TensorFlow Datasets or Hugging Face's save_to_disk; or a CSV of labels.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="File to write; '-' means standard output.")
    ] = _DEFAULT,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:[NAMES:]COLUMN]",
            help="Labels of images: a CSV, the column that names the images (if several could), "
            "and the column of labels; a COCO JSON; 'folders', 'paths' (nested folders), 'yolo', "
            "'masks' or 'none'. Default: those found, if only one kind fits.",
        ),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Folders of images that are parts of the data, with a pipeline each: their names, "
            "'folders' for all, or 'none'.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Key of the source, such as webdataset, if the data fits several."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the output and init's files beside it."),
    ] = False,
) -> None:
    """Looks at data and writes a commented pipelines.yaml that serves it.

    It reads names, image headers, the first records of files, and arrays, also in a store. It
    overwrites files only with --force, and your own label files never.

    \b
    Examples:
      infeed init data/photos
      infeed init data/photos --labels data/table.csv:breed
      infeed init 'data/train-*.tfrecord' --output records.yaml
      infeed init 'data/train-*.tar'
      infeed init s3://bucket/train --source webdataset
      infeed init data/digits.npz --output -
    """
    set_up_logging()
    defer_tensorflow()
    if len(path) > 1:
        raise ConfigError(
            f"{len(path)} paths, such as {path[0]} and {path[1]}, instead of one folder or "
            "pattern; quote a pattern, so that the shell does not expand it"
        )
    file = Path(_DEFAULT if output == _STDOUT else output)
    given = {"path": path[0], "output": output, "parts": parts, "labels": labels, "source": source}
    options, starter = _starter(given, file.parent)
    shown = shlex.quote(str(file))
    text = starter.text(_command({**options, "output": _DEFAULT}), shown)
    new_console(sys.stderr).print(starter.table())
    if output == _STDOUT:
        if starter.files:
            names = ", ".join(starter.files)
            problem = f"{names} must be written beside the pipelines; give a file as --output"
            raise ConfigError(f"--output -: {problem}")
        typer.echo(text, nl=False)
        return
    texts = {file: text} | {file.parent / name: made for name, made in starter.files.items()}
    contents = {target: _content(target, text, force) for target, text in texts.items()}
    for target, content in contents.items():
        _write(target, content)
    count = len(starter.drafts)
    for line in (
        *starter.notes(),
        f"written: {', '.join(map(str, texts))}: {count} pipeline{'s' * (count > 1)}",
        f"next: {starter.check(shown)}",
        f"then: infeed serve {shown}",
    ):
        print_lines(console, line)


def _starter(options: dict[str, Any], target: Path) -> tuple[dict[str, Any], Starter]:
    """Returns the options and the starter. Asks for missing options on a terminal; elsewhere raises
    `ConfigError` with the commands that choose them."""
    from infeed_tools.init.detect import starter_for
    from infeed_tools.init.listing import UnclearError

    names = ("path", "parts", "labels", "source")
    try:
        return options, starter_for(target=target, **{name: options[name] for name in names})
    except UnclearError as error:
        choices = [{**options, **choice} for choice, _ in error.choices]
        described = zip(choices, error.choices, strict=True)
        lines = [f"{_command(choice)}  # {printable(text)}" for choice, (_, text) in described]
        if not _is_interactive():
            raise ConfigError("\n  ".join([f"{error.message}:", *lines])) from None
        print_lines(console, f"{error.message}:")
        for number, line in enumerate(lines, 1):
            print_lines(console, f"  {number}  {line}")
        numbers = [str(number + 1) for number in range(len(lines))]
        chosen = IntPrompt.ask("number", console=console, choices=numbers)
        return _starter(choices[chosen - 1], target)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and console.is_terminal


def _command(options: Mapping[str, Any]) -> str:
    """Returns the command with these options."""
    words = ["infeed", "init", options["path"]]
    for name, value in options.items():
        if value and name != "path" and (name, value) != ("output", _DEFAULT):
            words += [f"--{name}", value]
    return shlex.join(words)


def _content(path: Path, text: str, force: bool) -> bytes:
    """Returns the text encoded. Raises `ConfigError` if the file has other content, unless
    forced."""
    content = text.encode()
    is_same = path.is_file() and path.read_bytes() == content
    if os.path.lexists(path) and not is_same and not force:
        raise ConfigError(
            f"{path} already exists; overwrite it with --force, or give --output in another folder",
            file=path,
        )
    return content


def _write(path: Path, content: bytes) -> None:
    """Writes a file: a new one whole or not at all, an existing one, such as a device, in place.
    Raises `ConfigError`."""
    try:
        if os.path.lexists(path):
            path.write_bytes(content)
        else:
            write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error_text(error)}", file=path) from error
