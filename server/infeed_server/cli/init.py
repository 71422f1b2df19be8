"""The command `infeed init`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.prompt import IntPrompt

from infeed.shared.errors import ConfigError, InfeedError
from infeed.shared.printable import printable
from infeed_server.cli.console import console, print_line, report_console
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import write_atomically

if TYPE_CHECKING:
    from infeed_server.starter.draft import Starter

_STDOUT = "-"


def init(
    path: Annotated[
        list[str],
        typer.Argument(
            help="Data, as a path or URL: a folder of images, TFRecords, ArrayRecords, WebDataset "
            "tars, Parquet, arrays or Megatron's .idx, such a file or a glob in quotes; a folder "
            "of MDS, of TensorFlow Datasets or of Hugging Face's save_to_disk; or a CSV of labels.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write; '-' is standard output.")
    ] = "pipelines.yaml",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="Labels of images: a CSV and the name of its column, 'folders', 'paths' (of "
            "nested folders) or 'none'. Default: what names of files and CSVs leave no doubt of.",
        ),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Folders of images that are parts of the data, a pipeline each: their names, "
            "'folders' for all, or 'none'.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Key of the source, such as webdataset, where the data fits several."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the output, and what init wrote beside it."),
    ] = False,
) -> None:
    """Looks at data and writes a commented pipelines.yaml that serves it.

    It reads names, headers of images, the first records of files, and arrays, also in a store.
    It overwrites no file without --force, and never a file of labels of yours.

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
    data = path[0]
    if len(path) > 1:
        raise ConfigError(
            f"{len(path)} paths, such as {data} and {path[1]}, but one pattern or folder is "
            "needed; put a pattern in quotes, so that the shell leaves it as it is"
        )
    file = Path("pipelines.yaml" if output == _STDOUT else output)
    options = {"parts": parts, "labels": labels, "source": source}
    data, starter = _starter(data, file, output, options)
    shown = shlex.quote(str(file))
    text = starter.text(_command(data, options), shown)
    if output == _STDOUT:
        if starter.files:
            raise ConfigError(
                f"--output -: {', '.join(starter.files)} must be written beside the pipelines; "
                "give --output a file"
            )
        typer.echo(text, nl=False)
        return
    texts = {file: text, **{file.parent / name: made for name, made in starter.files.items()}}
    targets = {target: _encode(target, made) for target, made in texts.items()}
    for target, content in targets.items() if not force else ():
        _check_target(target, content, "" if target == file else "in another folder ")
    for target, content in targets.items():
        _write(target, content)
    report_console(sys.stderr).print(starter.table())
    count = len(starter.drafts)
    for line in (
        *starter.notes(),
        f"written: {', '.join(map(str, targets))}: {count} pipeline{'s' * (count > 1)}",
        f"next: infeed check {shown} --scan",
        f"then: infeed serve {shown}",
    ):
        print_line(console, line)


def _starter(
    path: str, file: Path, output: str, options: dict[str, str | None]
) -> tuple[str, Starter]:
    """Returns the path and its starter. Sets the options that are chosen, on a terminal by a
    question. Raises `ConfigError` with the commands that choose them."""
    from infeed_server.starter.detect import starter_for
    from infeed_server.starter.listing import UnclearError
    from infeed_server.storage.git_lfs import name_pointer

    while True:
        try:
            return path, starter_for(path, file.parent, **options)
        except UnclearError as error:
            given = {} if output == "pipelines.yaml" else {"output": output}
            commands = [
                (_command(choice.get("path", path), {**given, **options, **choice}), text)
                for choice, text in error.choices
            ]
            if not _is_interactive():
                lines = [f"  {command}  # {printable(text)}" for command, text in commands]
                raise ConfigError("\n".join([f"{error.message}:", *lines])) from None
            print_line(console, f"{error.message}:")
            for number, (command, text) in enumerate(commands, 1):
                print_line(console, f"  {number}  {printable(text)}\n     {command}")
            numbers = [str(number) for number in range(1, len(commands) + 1)]
            number = IntPrompt.ask("number", console=console, choices=numbers)
            choice, _ = error.choices[number - 1]
            path = choice.get("path", path)
            options |= {name: value for name, value in choice.items() if name != "path"}
        except InfeedError as error:
            name_pointer(error)
            raise


def _command(path: str, options: Mapping[str, str | None]) -> str:
    """Returns the command with these options."""
    given = [
        f" --{name} {shlex.quote(value)}"
        for name, value in options.items()
        if value and name != "path"
    ]
    return f"infeed init {shlex.quote(path)}{''.join(given)}"


def _is_interactive() -> bool:
    return sys.stdin.isatty() and console.is_terminal


def _encode(path: Path, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        name = text[max(0, error.start - 20) : error.end + 20]
        problem = f"{name!r} has a name that is not UTF-8; rename it"
        raise ConfigError(f"{path} cannot be written: {problem}", file=path) from error


def _write(path: Path, content: bytes) -> None:
    """Writes a file: a new one whole or not at all, into one that exists as into a device. Raises
    `ConfigError`."""
    if not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}", file=path)
    try:
        if os.path.lexists(path):
            path.write_bytes(content)
        else:
            write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error_text(error)}", file=path) from error


def _check_target(path: Path, content: bytes, where: str) -> None:
    """Raises `ConfigError` for a file that exists with other content; --output `where` writes
    another one."""
    if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == content):
        raise ConfigError(
            f"{path} exists already; --force overwrites it, --output {where}writes another file",
            file=path,
        )
