"""Plan of a load test: its options, checked, and the thresholds that its report must keep."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from infeed.prefetch.feed_options import FeedOptions
from infeed.shared.arguments import check_integer, check_seconds
from infeed.shared.errors import InvalidRequestError

MAX_TRAINERS = 1024
"""Trainers of one test: more would measure this machine."""

MAX_DELAY_SECONDS = 10.0
"""Seconds that a proxy may add: after 15 of silence, trainers give a connection up."""

UTILISATION_THRESHOLD = 0.90
"""The accelerator utilisation from which MLPerf Storage accepts a run, for most of its models."""

_WARM_UP_SHARE = 0.1
"""Share of the duration that is left out at the beginning, by default."""


@dataclass(frozen=True)
class Kill:
    """A trainer that is killed, and resumes at once from its last cursor."""

    rank: int
    at: float
    """Seconds after all trainers have begun."""

    @classmethod
    def parse(cls, text: str) -> Kill:
        """Parses RANK@SECONDS, such as 2@10. Raises `InvalidRequestError`."""
        return cls(*_parse("--kill", text, r"(\d+)@([\d.]+)", "2@10"))


@dataclass(frozen=True)
class Stall:
    """A trainer that makes no step for some time, `at` seconds after all trainers have begun."""

    rank: int
    at: float
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Stall:
        """Parses RANK@SECONDS:SECONDS, such as 2@10:5. Raises `InvalidRequestError`."""
        return cls(*_parse("--stall", text, r"(\d+)@([\d.]+):([\d.]+)", "2@10:5"))


def _parse(option: str, text: str, pattern: str, example: str) -> tuple[Any, ...]:
    try:
        rank, *seconds = re.fullmatch(pattern, text).groups()  # type: ignore[union-attr]
        return int(rank), *(check_seconds(option, float(part)) for part in seconds)
    except (AttributeError, ValueError):  # no match, or 1.2.3
        form = "RANK@SECONDS" + ":SECONDS" * (":" in example)
        raise InvalidRequestError(
            f"{option} must be {form}, such as {example} for rank 2 and second 10; not {text!r}"
        ) from None


@dataclass(frozen=True)
class Thresholds:
    """What a report must keep; None: not checked."""

    min_utilisation: float | None = None
    """Accelerator utilisation of the worst trainer, 0 to 1."""
    max_wait_p99_seconds: float | None = None
    min_samples_per_second: float | None = None
    allow_lost_servers: bool = False
    """Whether servers may go during the test."""

    def __post_init__(self) -> None:
        share = self.min_utilisation
        if share is not None and not 0 < share <= 1:
            raise InvalidRequestError(
                f"--min-utilisation must be a share over 0 and up to 1, such as 0.9; not {share:g}"
            )
        for name in ("max_wait_p99_seconds", "min_samples_per_second"):
            if (value := getattr(self, name)) is not None:
                check_seconds(name, value)


@dataclass(frozen=True)
class LoadPlan:
    """The options of one load test. Raises `InvalidRequestError`. All times are in seconds."""

    trainers: int = 4
    step_seconds: float = 0.05
    """The time of a training step without its wait."""
    independent: bool = False
    """Whether each trainer is a job of its own, with a seed of its own; else ranks of one job."""
    threads: bool = False
    """Whether trainers are threads of this process, not processes."""
    ramp_seconds: float = 0.0
    """Time between the starts of two trainers."""
    duration_seconds: float = 30.0
    """Time from the first batch of the last trainer to the end."""
    steps: int | None = None
    """Steps of each trainer, in place of the duration."""
    warm_up_seconds: float | None = None
    """Part of the duration that is left out of the figures; None: a tenth of it."""
    rtt_seconds: float = 0.0
    jitter_seconds: float = 0.0
    batch_size: int | None = None
    seed: int | None = None
    prefetch_batches: int | None = None
    stalls: tuple[Stall, ...] = ()
    kills: tuple[Kill, ...] = ()
    thresholds: Thresholds = Thresholds()

    def __post_init__(self) -> None:
        check_integer("--trainers", self.trainers, 1, MAX_TRAINERS)
        for name in ("step", "ramp", "duration", "rtt", "jitter"):
            check_seconds(name, getattr(self, f"{name}_seconds"))
        check_seconds("warm_up", self.warm_up)
        if self.steps is not None:
            check_integer("--steps", self.steps, 2)
        # The trainers' own checks would fail in each of them.
        FeedOptions(
            batch_size=self.batch_size, seed=self.seed, prefetch_batches=self.prefetch_batches
        )
        if problem := self._problem():
            raise InvalidRequestError(problem)

    def _problem(self) -> str:
        for option, delay in (("--rtt-ms", self.rtt_seconds), ("--jitter-ms", self.jitter_seconds)):
            if delay > MAX_DELAY_SECONDS:
                return (
                    f"{option} must be at most {1000 * MAX_DELAY_SECONDS:g}, not {1000 * delay:g}: "
                    "trainers take a connection for lost that is silent for 15 seconds"
                )
        if self.steps is None and not self.duration_seconds:
            return "--duration must be over 0 seconds"
        if self.steps is None and self.warm_up >= self.duration_seconds:
            return (
                f"--warm-up {self.warm_up:g} leaves nothing of --duration "
                f"{self.duration_seconds:g} to measure"
            )
        if self.thresholds.min_utilisation is not None and not self.step_seconds:
            return "--min-utilisation needs --step-ms over 0: without compute there is none to use"
        events: tuple[Stall | Kill, ...] = (*self.stalls, *self.kills)
        for event in events:
            if event.rank >= self.trainers:
                return (
                    f"--{type(event).__name__.lower()}: rank {event.rank} is out of range; there "
                    f"are {self.trainers} trainers, with ranks from 0 to {self.trainers - 1}"
                )
        return ""

    @property
    def warm_up(self) -> float:
        """Seconds that are left out at the beginning."""
        if self.warm_up_seconds is not None:
            return self.warm_up_seconds
        return 0.0 if self.steps is not None else _WARM_UP_SHARE * self.duration_seconds
