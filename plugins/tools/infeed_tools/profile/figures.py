"""The figures of a profile: the costs of stages, and the report on a run of the whole pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from infeed.shared.report import ServerReport

Kind = Literal["read", "map", "parse", "cache", "transform", "batch", "encode", "finish"]
"""A stage: reading the source, Python functions where it is read, parsing, reading the `cache`, a
transform in the graph, building batches, encoding messages, or a transform at the trainer."""


class Cost(NamedTuple):
    """Seconds per sample: CPU time, and wall time with all cores at work."""

    cpu: float
    elapsed: float

    def times(self, share: float) -> Cost:
        return Cost(self.cpu * share, self.elapsed * share)

    def minus(self, other: Cost) -> Cost:
        """Returns the cost without another one, never negative."""
        return Cost(max(0.0, self.cpu - other.cpu), max(0.0, self.elapsed - other.elapsed))


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline, measured alone on real samples."""

    kind: Kind
    name: str
    cost: Cost
    bytes_in: float
    """Mean bytes of a sample before it."""
    bytes_out: float
    ordinal: int | None = None
    """Index of the transform in the definition, the last one of fused transforms."""
    cached: bool = False
    """Whether it comes before `cache`, and so runs only in the first epoch."""
    cacheable: bool = False
    """Whether its results are the same in every epoch and have a fixed size."""

    @property
    def label(self) -> str:
        """The name, after the index in the definition if it is a transform."""
        return self.name if self.ordinal is None else f"{self.ordinal}: {self.name}"


@dataclass
class Profile:
    """All figures measured so far, so that Ctrl-C loses nothing."""

    name: str
    cores: int
    batch_size: int = 0
    source_kind: str = ""
    source_samples: int = 0
    """Samples of the source; 0 if unknown."""
    samples: int = 0
    """Samples on which the stages were measured."""
    bad_samples: int = 0
    """Samples left out because they could not be read or transformed."""
    bad_example: str = ""
    """The error of the first bad sample."""
    stages: list[Stage] = field(default_factory=list)
    decoder: str = ""
    """The decoder of the pictures, and the reason for it."""
    run: ServerReport | None = None
    """The report on the whole pipeline, run like a server's after a warm-up, with requests."""
    wire_bytes: float | None = None
    """Mean bytes of a sample on the wire; None if unknown."""

    @property
    def server_stages(self) -> list[Stage]:
        """The stages that run at the server in every epoch."""
        return [stage for stage in self.stages if stage.kind != "finish" and not stage.cached]

    @property
    def run_samples(self) -> int:
        """Samples of the run."""
        return self.run.batches * self.batch_size if self.run else 0
