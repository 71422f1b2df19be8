"""The command `infeed init`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from infeed.errors import ConfigError
from infeed_server.cli.console import console
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow

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
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Looks at data and writes a commented pipelines.yaml that serves it.

    It reads names, headers of images, and the first records of files. It
    overwrites no file without --force.

    \b
    Examples:
      infeed init data/photos
      infeed init 'data/train-*.tfrecord' --output records.yaml
      infeed init data/digits.npz --output -
    """
    set_up_logging()
    defer_tensorflow()
    from infeed_server.starter.detect import starter_for
    from infeed_server.starter.draft import Place

    file = Path("pipelines.yaml" if output == _STDOUT else output)
    starter = starter_for(path, Place(file.parent))
    text = starter.text(f"infeed init {shlex.quote(path)}", shlex.quote(str(file)))
    if output == _STDOUT:
        if starter.files:
            raise ConfigError(
                f"--output -: {', '.join(starter.files)} must be written beside the pipelines; "
                "give --output a file"
            )
        typer.echo(text, nl=False)
        return
    beside = {file.parent / name: content for name, content in starter.files.items()}
    _write({file: text, **beside}, force)
    shown = shlex.quote(str(file))
    for line in (
        f"written: {file}",
        f"next: infeed check {shown} --scan",
        f"then: infeed serve {shown}",
    ):
        # A path that is wrapped at the width of the terminal cannot be copied.
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _write(files: dict[Path, str], force: bool) -> None:
    """Writes files; none of them, if one exists and `force` is not set. Raises `ConfigError`."""
    existing = [str(file) for file in files if os.path.lexists(file)]
    if existing and not force:
        raise ConfigError(
            f"{existing[0]} exists already; --force overwrites it, --output writes another file",
            file=existing[0],
        )
    for file, text in files.items():
        try:
            _write_whole(file, text)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}", file=file) from None


def _write_whole(file: Path, text: str) -> None:
    """Writes a file, of which a signal or a full disk leaves no part."""
    if file.exists() and not file.is_file():  # a device, such as /dev/stdout
        file.write_text(text, encoding="utf-8")
        return
    target = file.resolve()  # what a link names
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(target)
    except BaseException:  # also a signal
        unfinished.unlink(missing_ok=True)
        raise
