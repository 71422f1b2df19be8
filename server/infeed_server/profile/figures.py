"""The figures of a profile: costs of stages, and the rate of the whole pipeline."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["read", "map", "parse", "cache", "transform", "batch", "encode", "finish"]
"""A stage: reading the source, functions in Python where it is read, parsing, reading the `cache`,
a transform in the graph, building batches, encoding messages, and a transform of the trainer."""


@dataclass(frozen=True)
class Cost:
    """Seconds per sample. `cpu` is CPU time; `elapsed` is wall time with all cores at work.

    `delay` is the time that threads waited for a core, which other processes had: of all threads
    together, so it may be more than `elapsed`. `spread` is how much `cpu` differed between
    repetitions: the middle half of them. 0: it was measured once.
    """

    cpu: float
    elapsed: float
    delay: float = 0.0
    spread: float = 0.0

    def minus(self, other: Cost) -> Cost:
        """Returns what is left of a cost after another; never negative."""
        return Cost(
            max(0.0, self.cpu - other.cpu),
            max(0.0, self.elapsed - other.elapsed),
            max(0.0, self.delay - other.delay),
            math.hypot(self.spread, other.spread),
        )


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline, measured alone on real samples."""

    kind: Kind
    name: str
    cost: Cost
    bytes_in: float
    """Bytes of a sample before it, on average."""
    bytes_out: float
    ordinal: int | None = None
    """Number of the transform in the definition; of a fused one, that of the last."""
    cached: bool = False
    """Whether it stands before `cache`, and so runs in the first epoch alone."""
    runs_python: bool = False
    """Whether a function in a graph calls Python, which one thread at a time can do."""

    @property
    def label(self) -> str:
        """The name; of a transform with its number in the definition."""
        return self.name if self.ordinal is None else f"{self.ordinal}: {self.name}"


@dataclass(frozen=True)
class Run:
    """The whole pipeline, run as a server runs it, after a warm-up."""

    samples: int
    seconds: float
    cpu_seconds: float
    other_cpu_seconds: float
    """CPU seconds of the host's other processes meanwhile."""
    delay_seconds: float = 0.0
    """Seconds that this pipeline's threads waited for a core."""

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    @property
    def cores_used(self) -> float:
        return self.cpu_seconds / self.seconds

    @property
    def other_cores(self) -> float:
        """The cores that other processes used."""
        return self.other_cpu_seconds / self.seconds

    @property
    def cpu_per_sample(self) -> float:
        """CPU seconds of a sample."""
        return self.cpu_seconds / max(self.samples, 1)


@dataclass(frozen=True)
class Change:
    """A change of the definition that was measured on the same samples."""

    kind: str
    text: str
    cpu: float
    """CPU seconds of a sample after it, of all stages of the server."""
    wire_bytes: float
    """Bytes of a sample on the wire after it."""


@dataclass
class Profile:
    """All that a profile has measured so far, so that Ctrl-C loses nothing."""

    name: str
    cores: int
    batch_size: int = 0
    source_kind: str = ""
    samples: int = 0
    """Samples that the stages were measured on."""
    bad_samples: int = 0
    """Samples that could not be read or transformed, which were left out."""
    bad_example: str = ""
    """The error of the first of them."""
    stages: list[Stage] = field(default_factory=list)
    run: Run | None = None
    changes: list[Change] = field(default_factory=list)
    wire_bytes: float | None = None
    """Bytes of a sample on the wire, with the finish transforms at the trainer."""
    finished_bytes: float | None = None
    """Bytes of a sample on the wire, with the finish transforms at the server."""
    note: str = ""
    """Why there are no figures of single transforms."""

    @property
    def server_stages(self) -> list[Stage]:
        """The stages that run at the server in every epoch."""
        return [each for each in self.stages if each.kind != "finish" and not each.cached]

    @property
    def finish_cpu(self) -> float:
        """CPU seconds of a sample at the trainer."""
        return sum(each.cost.cpu for each in self.stages if each.kind == "finish")
