"""Options of `infeed loadtest`, as a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infeed.cli.connection import SEED, TIMEOUT
from infeed.cli.model_options import option
from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from infeed.loadtest import LoadPlan


_FAULT = {"rich_help_panel": "Faults"}
_THRESHOLD = {"rich_help_panel": "Thresholds"}


@dataclass(frozen=True)
class LoadtestOptions:
    """The options, as they are given."""

    trainers: int = option(4, "Simulated trainers.", "--trainers", "-n")
    step_ms: float = option(50.0, "Milliseconds of a training step without its wait.", metavar="MS")
    independent: bool = option(
        False,
        "Each trainer is a job of its own, with a seed of its own. Default: ranks of one job.",
    )
    threads: bool = option(False, "Run trainers as threads. Default: as processes.")
    ramp: float = option(0.0, "Seconds between the starts of two trainers.", metavar="SECONDS")
    duration: float = option(
        30.0, "Seconds from the first batch of the last trainer to the end.", metavar="SECONDS"
    )
    steps: int | None = option(None, "Steps of each trainer, instead of the duration.")
    warm_up: float | None = option(
        None,
        "Seconds that no figure covers at first. Default: a tenth of the duration.",
        metavar="SECONDS",
    )
    batch_size: int | None = option(
        None, "Slots of each batch of a trainer. Default: the pipeline's."
    )
    seed: int | None = option(None, SEED)
    prefetch_batches: int | None = option(
        None, "Batches that a trainer prefetches. Default: as 'connect'."
    )
    rtt_ms: float = option(0.0, "Milliseconds to add to the round trip.", metavar="MS", **_FAULT)
    jitter_ms: float = option(
        0.0, "Random milliseconds to add to it, from 0 to this.", metavar="MS", **_FAULT
    )
    stall: list[str] | None = option(
        None,
        "A trainer that makes no step for some time; can be repeated.",
        metavar="RANK@SECOND:SECONDS",
        **_FAULT,
    )
    kill: list[str] | None = option(
        None,
        "A trainer that is killed and resumes from its cursor; can be repeated.",
        metavar="RANK@SECOND",
        **_FAULT,
    )
    min_utilisation: float | None = option(
        None, "Least accelerator utilisation of the worst trainer, such as 0.9.", **_THRESHOLD
    )
    max_wait_p99_ms: float | None = option(None, "Largest p99 of a trainer's waits.", **_THRESHOLD)
    min_samples_per_second: float | None = option(
        None, "Least throughput of all trainers.", **_THRESHOLD
    )
    allow_lost_servers: bool = option(
        False,
        "Servers may go during the test; without it, the loss of one is a failure.",
        **_THRESHOLD,
    )
    find_max: bool = option(
        False,
        "Search the number of trainers, from 1 up to --trainers, that keeps --min-utilisation, or "
        "0.9. Each test has the duration.",
    )
    output: str | None = option(
        None,
        "Also write the result to this file; with '-' only to standard output, instead of the "
        "text.",
        "--json",
        metavar="FILE",
    )
    html: Path | None = option(None, "Also write a page with plots to this file.", metavar="FILE")
    timeout: float = option(20.0, TIMEOUT, metavar="SECONDS")

    def plan(self) -> LoadPlan:
        """Returns the plan. Raises `InvalidRequestError` for options that do not fit."""
        from infeed.loadtest import Kill, LoadPlan, Stall, Thresholds  # noqa: PLC0415

        if self.find_max and not (self.step_ms and self.steps is None):
            raise InvalidRequestError("--find-max needs --step-ms over 0, and no --steps")
        same = (
            *("trainers", "independent", "threads", "steps"),
            *("batch_size", "seed", "prefetch_batches"),
        )
        p99 = self.max_wait_p99_ms
        return LoadPlan(
            **{name: getattr(self, name) for name in same},
            step_seconds=self.step_ms / 1000,
            ramp_seconds=self.ramp,
            duration_seconds=self.duration,
            warm_up_seconds=self.warm_up,
            rtt_seconds=self.rtt_ms / 1000,
            jitter_seconds=self.jitter_ms / 1000,
            stalls=tuple(map(Stall.parse, self.stall or [])),
            kills=tuple(map(Kill.parse, self.kill or [])),
            thresholds=Thresholds(
                self.min_utilisation,
                None if p99 is None else p99 / 1000,
                self.min_samples_per_second,
                allow_lost_servers=self.allow_lost_servers,
            ),
        )

    def files(self) -> dict[str, Path]:
        """Returns the files to write, by option."""
        found = {"--html": self.html, "--json": None if self.output == "-" else self.output}
        return {option: Path(path) for option, path in found.items() if path is not None}
