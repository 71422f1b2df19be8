"""Plan of a load test: the options of `infeed loadtest`, checked."""
# ruff: noqa: RUF009 - `_option` returns a field

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from infeed.shared.arguments import MAX_INT64, MAX_SECONDS
from infeed.shared.errors import InvalidRequestError

UTILISATION_THRESHOLD = 0.90
"""The accelerator utilisation from which MLPerf Storage accepts a run, for most of its models."""

_WARM_UP_SHARE = 0.1
"""Share of the duration that is left out at the beginning, by default."""

_FAULT = {"rich_help_panel": "Faults"}
_THRESHOLD = {"rich_help_panel": "Thresholds"}
_SECONDS: dict[str, Any] = {"metavar": "SECONDS", "max": MAX_SECONDS}
_DELAY = {"metavar": "MS", "min": 0, "max": 10_000, **_FAULT}
"""Delays end where trainers take a silent connection for lost, after 15 seconds."""


class Fault(NamedTuple):
    """A trainer that is killed and resumes at once from its last cursor, or stalls."""

    rank: int
    at: float
    """Seconds after all trainers have begun."""
    stall_seconds: float
    """The time in which it makes no step; 0: it is killed."""


def _option(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """Declares an option of the command line, which has the field's name without `names`."""
    extra = {"min": 0, **more, **({"names": names} if names else {})}
    if not isinstance(default, float) and not {"min", "max"} & more.keys():
        del extra["min"]
    return field(default=default, metadata={"help": help_text, "extra": extra})


@dataclass(frozen=True)
class LoadPlan:
    """The options of one load test. Raises `InvalidRequestError`."""

    # More trainers would measure this machine.
    trainers: int = _option(4, "Simulated trainers.", "--trainers", "-n", min=1, max=1024)
    step_ms: float = _option(
        50.0, "Milliseconds of a training step without its wait.", metavar="MS", max=1e9
    )
    independent: bool = _option(
        False,
        "Each trainer is a job of its own, with a seed of its own. Default: ranks of one job.",
    )
    ramp: float = _option(0.0, "Seconds between the starts of two trainers.", **_SECONDS)
    duration: float = _option(
        30.0,
        "Seconds from the first batch of the last trainer to the end.",
        **{**_SECONDS, "min": 0.1},
    )
    steps: int | None = _option(None, "Steps of each trainer, instead of the duration.", min=2)
    warm_up: float | None = _option(
        None,
        "Seconds that no figure covers at first. Default: a tenth of the duration.",
        **_SECONDS,
    )
    batch_size: int | None = _option(
        None, "Slots of each batch of a trainer. Default: the pipeline's.", min=1
    )
    seed: int | None = _option(None, "Seed of the order. Default: the pipeline's.", min=0)
    prefetch_batches: int | None = _option(
        None, "Batches that a trainer prefetches. Default: as 'connect'.", min=2
    )
    timeout: float = _option(20.0, "Seconds to wait for a server that is starting.", **_SECONDS)
    rtt_ms: float = _option(0.0, "Milliseconds to add to the round trip.", **_DELAY)
    jitter_ms: float = _option(0.0, "Random milliseconds to add to it, from 0 to this.", **_DELAY)
    stall: list[str] | None = _option(
        None,
        "A trainer that makes no step for some time; can be repeated.",
        metavar="RANK@SECOND:SECONDS",
        **_FAULT,
    )
    kill: list[str] | None = _option(
        None,
        "A trainer that is killed and resumes from its cursor; can be repeated.",
        metavar="RANK@SECOND",
        **_FAULT,
    )
    min_utilisation: float | None = _option(
        None,
        "Least accelerator utilisation of the worst trainer, such as 0.9.",
        min=0.001,
        max=1,
        **_THRESHOLD,
    )
    max_wait_p99_ms: float | None = _option(
        None, "Largest p99 of a trainer's waits.", min=0, **_THRESHOLD
    )
    min_samples_per_second: float | None = _option(
        None, "Least throughput of all trainers.", min=0, **_THRESHOLD
    )
    allow_lost_servers: bool = _option(
        False,
        "Servers may go during the test; without it, the loss of one is a failure.",
        **_THRESHOLD,
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value, extra = getattr(self, option.name), option.metadata["extra"]
            low, high = extra.get("min", 0), extra.get("max", MAX_INT64)
            # Typer checks the same, but for NaN.
            if isinstance(value, int | float) and not low <= value <= high:
                name = option.name.replace("_", "-")
                raise InvalidRequestError(f"--{name} must be from {low} to {high:g}, not {value}")
        if self.steps is None and self.warm_up_seconds >= self.duration:
            raise InvalidRequestError(
                f"--warm-up {self.warm_up:g} leaves nothing of --duration {self.duration:g} to "
                "measure; make it shorter"
            )
        if self.min_utilisation is not None and not self.step_ms:
            raise InvalidRequestError(
                "--min-utilisation needs --step-ms over 0: without compute there is none to use"
            )
        for fault in self.faults:
            if fault.rank >= self.trainers:
                raise InvalidRequestError(
                    f"rank {fault.rank} of --kill or --stall is out of range; there are "
                    f"{self.trainers} trainers, with ranks from 0 to {self.trainers - 1}"
                )

    @property
    def step_seconds(self) -> float:
        return self.step_ms / 1000

    @property
    def warm_up_seconds(self) -> float:
        """Seconds that are left out at the beginning."""
        if self.warm_up is not None:
            return self.warm_up
        return 0.0 if self.steps is not None else _WARM_UP_SHARE * self.duration

    @property
    def faults(self) -> list[Fault]:
        """The stalls and the kills."""
        stalls = [_fault("--stall", text, "2@10:5") for text in self.stall or ()]
        return stalls + [_fault("--kill", text, "2@10") for text in self.kill or ()]


def _fault(option: str, text: str, example: str) -> Fault:
    """Parses RANK@SECONDS, for a stall with :SECONDS."""
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(\d+)@{number}" + f":{number}" * (":" in example), text)
    if found is None:
        raise InvalidRequestError(
            f"{option} must be such as {example}, for rank 2 and second 10; not {text!r}"
        )
    rank, *seconds = found.groups()
    return Fault(int(rank), *map(float, [*seconds, "0"][:2]))
