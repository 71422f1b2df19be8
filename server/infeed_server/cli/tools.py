"""The commands `infeed index`, `infeed token` and `infeed demo`."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from infeed_server.cli.console import console, index_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow


def index(
    pattern: Annotated[str, typer.Argument(help="TFRecord files or tars: a path or a glob.")],
    directory: Annotated[
        str | None, typer.Option(help="Folder of the index. Default: beside the data.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build it even if it is up to date.")
    ] = False,
) -> None:
    """Builds the record index of TFRecord files or WebDataset tars, or checks an existing one.

    All data of TFRecords is read and verified. Damaged records are bad samples under
    on_error: substitute or mask. Of tars, the headers are read and verified.

    \b
    Example:
      infeed index 'data/train-*.tfrecord'
    """
    set_up_logging()
    with loading_tensorflow():
        from infeed_server.sources import TFRecordSource
        from infeed_server.sources.base import FilesDefinition
        from infeed_server.sources.registry import source_classes
        from infeed_server.storage.files import list_files

    files = list_files([pattern])
    endings = {Path(file.path).suffix.lower() for file in files}
    definition: type[FilesDefinition] = TFRecordSource
    for other in source_classes():
        if issubclass(other, FilesDefinition) and endings == {other.indexed_ending}:
            definition = other
    with index_progress(pattern) as progress:
        lines = [*definition.index_files(files, directory, progress, rebuild=rebuild)]
    print("\n".join(lines))


def token(
    name: Annotated[str, typer.Argument(help="Name of its owner, for messages and the log.")],
    pipelines: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            help="Name or pattern of pipelines it may read; can be repeated. Default: all.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When it ends: a duration from now, such as 12h, 30d or 8w, or a date or time in "
            "UTC, such as 2027-06-30. Default: never.",
        ),
    ] = None,
) -> None:
    """Makes a bearer token, and its entry for the file of `infeed serve --tokens`.

    \b
    Examples:
      infeed token alice --pipeline 'photos-*'
      infeed token bob --expires 30d
    """
    set_up_logging()
    from infeed_server.serving.auth import new_token, parse_expiry, token_entry

    end = None if expires is None else parse_expiry(expires, datetime.now(timezone.utc))
    secret = new_token()
    console.print("[bold]the token[/], for trainers, to be kept secret:")
    print(secret, flush=True)
    console.print("[bold]its entry[/], under 'tokens:' in the server's file:")
    print(token_entry(secret, name, pipelines or ["*"], end), end="")


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train.")] = 5,
    directory: Annotated[
        Path,
        typer.Option(file_okay=False, metavar="FOLDER", help="Folder that gets the data set."),
    ] = Path("infeed-demo"),
) -> None:
    """Draws images, serves them from another process, trains on them, and prints what comes next.

    \b
    Example:
      infeed demo --epochs 2
    """
    set_up_logging()
    with loading_tensorflow():
        from infeed_server.demo import run
    raise typer.Exit(run(console, epochs, directory))
