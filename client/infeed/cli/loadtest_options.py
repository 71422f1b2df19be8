"""Options of `infeed loadtest`, as a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infeed.cli.connection import Seed, Timeout
from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from infeed.loadtest import LoadPlan


def _threshold(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel="Thresholds")


def _fault(metavar: str, help_text: str) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel="Faults")


@dataclass(frozen=True)
class LoadtestOptions:
    """The options, as they are given."""

    trainers: Annotated[int, typer.Option("--trainers", "-n", help="Simulated trainers.")] = 4
    step_ms: Annotated[
        float, typer.Option(metavar="MS", help="Milliseconds of a training step without its wait.")
    ] = 50.0
    independent: Annotated[
        bool,
        typer.Option(
            "--independent",
            help="Each trainer is a job of its own, with a seed of its own. Default: ranks of one "
            "job.",
        ),
    ] = False
    threads: Annotated[
        bool, typer.Option("--threads", help="Run trainers as threads. Default: as processes.")
    ] = False
    ramp: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds between the starts of two trainers.")
    ] = 0.0
    duration: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds from the first batch of the last trainer to the end."
        ),
    ] = 30.0
    steps: Annotated[
        int | None, typer.Option(help="Steps of each trainer, instead of the duration.")
    ] = None
    warm_up: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds that no figure covers at first. Default: a tenth of the duration.",
        ),
    ] = None
    batch_size: Annotated[
        int | None, typer.Option(help="Slots of each batch of a trainer. Default: the pipeline's.")
    ] = None
    seed: Seed = None
    prefetch_batches: Annotated[
        int | None, typer.Option(help="Batches that a trainer prefetches. Default: as 'connect'.")
    ] = None
    rtt_ms: Annotated[float, _fault("MS", "Milliseconds to add to the round trip.")] = 0.0
    jitter_ms: Annotated[
        float, _fault("MS", "Random milliseconds to add to it, from 0 to this.")
    ] = 0.0
    stall: Annotated[
        list[str] | None,
        _fault(
            "RANK@SECOND:SECONDS", "A trainer that makes no step for some time; can be repeated."
        ),
    ] = None
    kill: Annotated[
        list[str] | None,
        _fault(
            "RANK@SECOND",
            "A trainer that is killed and resumes from its cursor; can be repeated.",
        ),
    ] = None
    min_utilisation: Annotated[
        float | None,
        _threshold("Least accelerator utilisation of the worst trainer, such as 0.9."),
    ] = None
    max_wait_p99_ms: Annotated[float | None, _threshold("Largest p99 of a trainer's waits.")] = None
    min_samples_per_second: Annotated[
        float | None, _threshold("Least throughput of all trainers.")
    ] = None
    allow_lost_servers: Annotated[
        bool,
        _threshold(
            "Servers may go during the test; without it, the loss of one is a failure.",
            "--allow-lost-servers",
        ),
    ] = False
    find_max: Annotated[
        bool,
        typer.Option(
            "--find-max",
            help="Search the number of trainers, from 1 up to --trainers, that keeps "
            "--min-utilisation, or 0.9. Each test has the duration.",
        ),
    ] = False
    output: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Also write the result to this file; with '-' only to standard output, instead of "
            "the text.",
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page with plots to this file."),
    ] = None
    timeout: Timeout = 20.0

    def plan(self) -> LoadPlan:
        """Returns the plan. Raises `InvalidRequestError` for options that do not fit."""
        from infeed.loadtest import Kill, LoadPlan, Stall, Thresholds  # noqa: PLC0415

        if self.find_max and not (self.step_ms and self.steps is None):
            raise InvalidRequestError("--find-max needs --step-ms over 0, and no --steps")
        most = None if self.max_wait_p99_ms is None else self.max_wait_p99_ms / 1000
        return LoadPlan(
            trainers=self.trainers,
            step_seconds=self.step_ms / 1000,
            independent=self.independent,
            threads=self.threads,
            ramp_seconds=self.ramp,
            duration_seconds=self.duration,
            steps=self.steps,
            warm_up_seconds=self.warm_up,
            rtt_seconds=self.rtt_ms / 1000,
            jitter_seconds=self.jitter_ms / 1000,
            batch_size=self.batch_size,
            seed=self.seed,
            prefetch_batches=self.prefetch_batches,
            stalls=tuple(map(Stall.parse, self.stall or [])),
            kills=tuple(map(Kill.parse, self.kill or [])),
            thresholds=Thresholds(
                self.min_utilisation,
                most,
                self.min_samples_per_second,
                allow_lost_servers=self.allow_lost_servers,
            ),
        )

    def files(self) -> dict[str, Path]:
        """Returns the files to write, by option."""
        found = {"--html": self.html, "--json": None if self.output == "-" else self.output}
        return {option: Path(path) for option, path in found.items() if path is not None}
