"""The command `infeed index`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infeed.cli import PREPARE
from infeed_server.cli.console import index_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow

app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
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

    It reads and verifies all data of TFRecords, and the headers of tars. Damaged records are bad
    samples under on_error: substitute or mask.

    \b
    Example:
      infeed index 'data/train-*.tfrecord'
    """
    set_up_logging()
    with loading_tensorflow():
        from infeed_formats.tfrecord.source import TFRecordSource
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
