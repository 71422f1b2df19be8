"""Arguments of the commands that inspect a run: its name and its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from infeed.cli.connection import TIMEOUT
from infeed.cli.model_options import option
from infeed.run import Run
from infeed_runs.run_file import load_run

RunName = Annotated[
    str, typer.Argument(help="JSON file with the run's cursor, or PIPELINE, or PIPELINE@SEED.")
]


@dataclass(frozen=True)
class RunOptions:
    """The options of a run; a segment in its cursor states the sizes of its own steps."""

    world_size: int | None = option(None, "Number of ranks. Default: the cursor's, else 1.", min=1)
    batch_size: int | None = option(
        None, "Slots of each batch. Default: the cursor's, else the pipeline's.", min=1
    )
    as_json: bool = option(False, "Print JSON instead of text.", "--json")
    timeout: float = option(20.0, TIMEOUT, metavar="SECONDS")

    def load(self, name: str) -> Run:
        """Loads the run. Prints a note on standard error if the number of ranks is unknown and
        so taken as one."""
        run = load_run(name)
        if run.cursor is not None and not (self.world_size or run.sizes(0)[1]):
            typer.echo(
                "note: steps are counted for one rank, as the cursor does not record the "
                "number; give --world-size for a run with more",
                err=True,
            )
        return run
