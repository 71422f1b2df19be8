"""Command line of the chaos run: `python -m tests.stress.chaos [--events N] [--seed N] ...`."""

from __future__ import annotations

import json
import random
import signal
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from tests.harness.nursery import Nursery, Template
from tests.harness.waiting import HarnessError
from tests.stress.chaos.pipelines import PIPELINES
from tests.stress.chaos.schedule import draw_schedule
from tests.stress.chaos.server_faults import run_server_faults
from tests.stress.chaos.trainer_kills import run_trainer_kills


def main(
    events: Annotated[int, typer.Option(min=0, help="Number of server faults; 0: none.")] = 100,
    kills: Annotated[int, typer.Option(min=0, help="Number of trainer kills; 0: none.")] = 20,
    seed: Annotated[
        int | None, typer.Option(help="Seed of an earlier run, to repeat it; default: random.")
    ] = None,
    pace: Annotated[float, typer.Option(min=0.1, help="Mean seconds between events.")] = 4.0,
    pipeline: Annotated[str, typer.Option(help=" or ".join(PIPELINES))] = "photos",
    report: Annotated[Path | None, typer.Option(help="Write the report as JSON, too.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep logs and steps in this new directory.")
    ] = None,
) -> None:
    """Disturbs servers, kills trainers, and compares every batch with an undisturbed run.

    Exits with status 1 if a batch differs.
    """
    if pipeline not in PIPELINES:
        raise typer.BadParameter(f"no pipeline {pipeline}; available: {', '.join(PIPELINES)}")
    # SIGTERM acts as Ctrl-C: child processes must be stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    print(f"seed {seed}", flush=True)
    result: dict[str, Any] = {"seed": seed}
    # Forked from a process that has loaded TensorFlow, servers start sooner: a long run has
    # hundreds of starts.
    with (
        tempfile.TemporaryDirectory() as scratch,
        Template() as template,
        Nursery(template.address) as nursery,
    ):
        folder = keep or Path(scratch)
        for part in ("server_faults", "kills"):
            (folder / part).mkdir(parents=True)
        served = PIPELINES[pipeline](folder.resolve())
        try:
            if events:
                schedule = draw_schedule(seed, events, pace, served.reset_bytes)
                result["server_faults"] = run_server_faults(
                    served, folder / "server_faults", schedule, nursery.start
                )
            if kills:
                result["kills"] = run_trainer_kills(
                    served, folder / "kills", seed, kills, nursery.start
                )
        except HarnessError as error:
            raise SystemExit(f"error: {error}") from None
    exact = all(part["exact"] for part in result.values() if isinstance(part, dict))
    text = json.dumps({"exact": exact, **result}, indent=2) + "\n"
    print(text, end="")
    if report is not None:
        report.write_text(text)
    raise SystemExit(not exact)


if __name__ == "__main__":
    typer.run(main)
