"""Plan of a load test: the checked options of `infeed loadtest`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from infeed.shared.arguments import MAX_INT64, MAX_SECONDS
from infeed.shared.errors import InvalidRequestError

UTILISATION_THRESHOLD = 0.90
"""The least accelerator utilisation that MLPerf Storage accepts, for most of its models."""

_WARM_UP_SHARE = 0.1
"""Share of the duration left out at the beginning by default."""

_THRESHOLD = {"rich_help_panel": "Thresholds"}
_SECONDS: dict[str, Any] = {"metavar": "SECONDS", "max": MAX_SECONDS}


def _option(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """Declares an option of the command line, named like the field unless `names` are given."""
    extra = {"min": 0, **more, **({"names": names} if names else {})}
    if not isinstance(default, float) and not {"min", "max"} & more.keys():
        del extra["min"]
    return field(default=default, metadata={"help": help_text, "extra": extra})


@dataclass(frozen=True)
class LoadPlan:
    """The options of a load test. Raises `InvalidRequestError`."""

    # With more trainers, this machine would be the limit.
    trainers: int = _option(4, "Simulated trainers.", "--trainers", "-n", min=1, max=1024)
    step_ms: float = _option(
        50.0, "Milliseconds of a training step without its wait.", metavar="MS", max=1e9
    )
    independent: bool = _option(
        False,
        "Make each trainer its own job, with its own seed. Default: ranks of one job.",
    )
    duration: float = _option(
        30.0,
        "Seconds from the first batch of the last trainer to the end.",
        **{**_SECONDS, "min": 0.1},
    )
    steps: int | None = _option(None, "Steps of each trainer, instead of the duration.", min=2)
    warm_up: float | None = _option(
        None,
        "Seconds to leave out at first. Default: a tenth of the duration.",
        **_SECONDS,
    )
    batch_size: int | None = _option(None, "Slots of a batch. Default: the pipeline's.", min=1)
    seed: int | None = _option(None, "Seed of the order. Default: the pipeline's.", min=0)
    prefetch_batches: int | None = _option(
        None, "Batches that a trainer prefetches. Default: that of 'connect'.", min=2
    )
    timeout: float = _option(20.0, "Seconds to wait for a starting server.", **_SECONDS)
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
        "Accept the loss of servers during the test, which is otherwise a failure.",
        **_THRESHOLD,
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value, extra = getattr(self, option.name), option.metadata["extra"]
            low, high = extra.get("min", 0), extra.get("max", MAX_INT64)
            # Typer checks the same, except for NaN.
            if isinstance(value, int | float) and not low <= value <= high:
                name = option.name.replace("_", "-")
                raise InvalidRequestError(f"--{name} must be from {low} to {high:g}, not {value}")
        if self.steps is None and self.warm_up_seconds >= self.duration:
            raise InvalidRequestError(
                f"--warm-up {self.warm_up:g} leaves none of --duration {self.duration:g} to "
                "measure; shorten it"
            )
        if self.min_utilisation is not None and not self.step_ms:
            raise InvalidRequestError(
                "--min-utilisation needs --step-ms above 0, as utilisation is the share of compute"
            )

    @property
    def step_seconds(self) -> float:
        return self.step_ms / 1000

    @property
    def warm_up_seconds(self) -> float:
        """Seconds left out at the beginning."""
        if self.warm_up is not None:
            return self.warm_up
        return 0.0 if self.steps is not None else _WARM_UP_SHARE * self.duration
