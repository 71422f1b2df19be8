"""The command `infeed demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infeed_server.cli.console import console, loading_tensorflow
from infeed_server.cli.logs import set_up_logging


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train.")] = 6,
    directory: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            metavar="FOLDER",
            help="Folder of the data set. Default: a temporary one.",
        ),
    ] = None,
) -> None:
    """Serves an embedded data set from another process and trains a small model on it.

    \b
    Example:
      infeed demo --epochs 2
    """
    set_up_logging()
    with loading_tensorflow():
        from infeed_server.demo import run

    raise typer.Exit(run(console, epochs, directory))
