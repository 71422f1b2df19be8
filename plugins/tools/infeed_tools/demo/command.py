"""The command `infeed demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infeed.cli import SERVE
from infeed_server.cli.console import console
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow

app = typer.Typer()


@app.command(rich_help_panel=SERVE)
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train.")] = 5,
    directory: Annotated[
        Path,
        typer.Option(file_okay=False, metavar="FOLDER", help="Folder to write the dataset to."),
    ] = Path("infeed-demo"),
) -> None:
    """Draws images, serves them from another process, trains on them and prints the next steps.

    \b
    Example:
      infeed demo --epochs 2
    """
    set_up_logging()
    with loading_tensorflow():
        from infeed_tools.demo.run import run_demo
    raise typer.Exit(run_demo(console, epochs, directory))
