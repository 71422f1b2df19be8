"""The figures of a profile: costs of stages, and the report of the whole pipeline's run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from infeed.shared.report import ServerReport

Kind = Literal["read", "map", "parse", "cache", "transform", "batch", "encode", "finish"]
"""A stage: reading the source, functions in Python where it is read, parsing, reading the `cache`,
a transform in the graph, building batches, encoding messages, and a transform of the trainer."""


class Cost(NamedTuple):
    """Seconds per sample: of CPU time, and of wall time with all cores at work."""

    cpu: float
    elapsed: float

    def times(self, share: float) -> Cost:
        return Cost(self.cpu * share, self.elapsed * share)

    def minus(self, other: Cost) -> Cost:
        """Returns what is left of a cost after another; never negative."""
        return Cost(max(0.0, self.cpu - other.cpu), max(0.0, self.elapsed - other.elapsed))


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
    """Number of the transform in the definition; of a fused one, the last number."""
    cached: bool = False
    """Whether it stands before `cache`, and so runs in the first epoch alone."""
    cacheable: bool = False
    """Whether its results are the same in every epoch, and of a fixed size."""

    @property
    def label(self) -> str:
        """The name; of a transform with its number in the definition."""
        return self.name if self.ordinal is None else f"{self.ordinal}: {self.name}"


@dataclass
class Profile:
    """All that a profile has measured so far, so that Ctrl-C loses nothing."""

    name: str
    cores: int
    batch_size: int = 0
    source_kind: str = ""
    source_samples: int = 0
    """Samples of the source; 0: unknown."""
    samples: int = 0
    """Samples that the stages were measured on."""
    bad_samples: int = 0
    """Samples that could not be read or transformed, which were left out."""
    bad_example: str = ""
    """The error of the first of them."""
    stages: list[Stage] = field(default_factory=list)
    decoder: str = ""
    """Which decoder makes the pictures, and why."""
    run: ServerReport | None = None
    """The whole pipeline, run as a server runs it, after a warm-up, always with requests."""
    wire_bytes: float | None = None
    """Bytes of a sample on the wire, on average; None: unknown."""

    @property
    def server_stages(self) -> list[Stage]:
        """The stages that run at the server in every epoch."""
        return [stage for stage in self.stages if stage.kind != "finish" and not stage.cached]

    @property
    def run_samples(self) -> int:
        """Samples of the run."""
        return self.run.batches * self.batch_size if self.run else 0
