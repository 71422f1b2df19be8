"""The commands `infeed index`, `infeed token` and `infeed demo`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infeed_server.cli.console import console, index_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow

if TYPE_CHECKING:
    from infeed_server.storage.stamp import StoredFile


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
        from infeed_server.sources.tfrecord.index import build_index, refuse_truncated
        from infeed_server.storage.files import list_files

    files = list_files([pattern])
    if all(file.path.lower().endswith(".tar") for file in files):
        _index_tars(files, pattern, directory, rebuild=rebuild)
        return
    with index_progress(pattern) as progress:
        found = build_index(files, directory, progress, keep_damaged=True, rebuild=rebuild)
    for file in found.files:
        refuse_truncated(file)
    for file in found.files:
        state = "checked" if file.cached else "built"
        print(f"{file.path}: {file.records} records, index {state}")
    damaged = f", of which {len(found.damaged)} damaged" if len(found.damaged) else ""
    total = f"{len(found)} records in {len(found.files)} files{damaged}"
    print(f"{total}, identity {found.identity[:32]}")


def _index_tars(
    files: Sequence[StoredFile], pattern: str, directory: str | None, *, rebuild: bool
) -> None:
    from infeed_server.sources.webdataset.index import build_index

    with index_progress(pattern) as progress:
        tars = build_index(files, directory, progress, rebuild=rebuild)
    for tar in tars:
        state = "checked" if tar.cached else "built"
        print(f"{tar.file.path}: {tar.samples} samples, index {state}")
    print(f"{sum(tar.samples for tar in tars)} samples in {len(tars)} files")


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
