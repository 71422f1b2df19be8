"""The command `infeed index`."""

from __future__ import annotations

from typing import Annotated

import typer

from infeed_server.cli.console import index_progress, loading_tensorflow
from infeed_server.cli.logs import set_up_logging


def index(
    pattern: Annotated[str, typer.Argument(help="TFRecord files: a path or a glob.")],
    directory: Annotated[
        str | None, typer.Option(help="Folder of the index. Default: beside the data.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build it even if it is up to date.")
    ] = False,
) -> None:
    """Builds the record index of TFRecord files, or checks an existing one.

    All data is read and verified. Damaged records are bad samples under on_error: substitute or
    mask.

    \b
    Example:
      infeed index 'data/train-*.tfrecord'
    """
    set_up_logging()
    with loading_tensorflow():
        from infeed_server.sources.files import expand_globs
        from infeed_server.sources.tfrecord.index import build_index, refuse_truncated

    with index_progress(pattern) as progress:
        record_index = build_index(
            *(expand_globs([pattern]), directory, progress),
            keep_damaged=True,
            rebuild=rebuild,
        )
    for file in record_index.files:
        refuse_truncated(file)
    for file in record_index.files:
        state = "checked" if file.cached else "built"
        print(f"{file.path}: {file.records} records, index {state}")
    files, identity = len(record_index.files), record_index.identity[:32]
    damaged = len(record_index.damaged)
    of_these = f", of which {damaged} damaged" if damaged else ""
    print(f"{len(record_index)} records in {files} files{of_these}, identity {identity}")
