"""The figures of a profile: costs of stages, the run of the whole pipeline, and advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from infeed.shared.report import ServerReport

Kind = Literal["read", "parse", "transform", "batch", "encode", "finish"]
"""A stage: reading the source with functions in Python behind it, parsing, a transform in the
graph, building batches, encoding messages, and a transform of the trainer."""

_BUSY_SHARE = 0.8
"""Share of the cores it could have had, from which they are the limit of a run: with less, a run
that waits counts as one that computes."""

_LARGE_SHARE = 0.25
"""Share of the CPU time from which a stage is named: with less, its cost hardly matters."""

_HINTS = {
    "decode_image": "smaller images decode faster; of a crop right behind it, the window alone is "
    "decoded",
    "resize": "with a crop before it, only the window is resized",
    "batch": "smaller samples cost less to copy",
    "map": "make it cheaper, or do its work once, before training",
}
"""Name of a transform → what usually makes it cheaper."""


class Cost(NamedTuple):
    """Seconds per sample: of CPU time, and of wall time with all cores at work."""

    cpu: float
    elapsed: float

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

    @property
    def transform(self) -> str:
        """The name of its (first) transform: `decode_image` of `0: decode_image+random_crop`."""
        return self.name.rpartition(": ")[2].partition(" ")[0].partition("+")[0]

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        cpu, elapsed = values.pop("cost")
        return values | {"cpu_seconds": cpu, "elapsed_seconds": elapsed}


@dataclass
class Profile:
    """All that a profile has measured so far."""

    name: str
    cores: int
    batch_size: int = 0
    source_kind: str = ""
    cached: bool = False
    """Whether the definition has a `cache`, which leaves out work from the second epoch on."""
    samples: int = 0
    """Samples that the stages were measured on."""
    bad_samples: int = 0
    """Samples that could not be read or transformed, which were left out."""
    bad_example: str = ""
    """The error of the first of them."""
    stages: list[Stage] = field(default_factory=list)
    run: ServerReport | None = None
    """The whole pipeline, run as a server runs it, after a warm-up, always with requests."""
    wire_bytes: float | None = None
    """Bytes of a sample on the wire, on average; None: unknown."""

    @property
    def server_stages(self) -> list[Stage]:
        """The stages that run at the server."""
        return [stage for stage in self.stages if stage.kind != "finish"]

    def share(self, stage: Stage) -> float:
        """Returns a stage's part of the CPU time of the server's stages."""
        total = sum(other.cost.cpu for other in self.server_stages)
        return stage.cost.cpu / total if total else 0.0

    @property
    def limit(self) -> Literal["cpu", "read", "transforms"]:
        """What limits the run: the cores, the source, or transforms that do not use all cores."""
        run = self.run or ServerReport()
        is_computing = run.cpu_seconds >= _BUSY_SHARE * run.seconds * run.usable_cores
        is_reading = run.source_seconds > run.seconds * (run.cpu_share if is_computing else 0.5)
        return "read" if is_reading else "cpu" if is_computing else "transforms"

    def advice(self) -> list[str]:
        """Returns what the figures support."""
        reading = self._reading() if self.limit == "read" else ()
        return [*reading, *self._large(), *self._sent()]

    def _reading(self) -> Iterator[str]:
        """Yields what helps where reading is the limit."""
        is_mapped = any(stage.kind == "read" and ", map" in stage.name for stage in self.stages)
        if is_mapped or self.source_kind == "python":
            yield "functions in Python are the limit: raise processes, of the source or the map"
            return
        text = "reading is the limit: use nearer or faster storage"
        small = "; a file for each sample costs a request each, TFRecords read many at once"
        yield text + (small if self.source_kind == "images" else "")

    def _large(self) -> Iterator[str]:
        """Yields the stages that take much of the CPU time, the largest first."""
        for stage in sorted(self.server_stages, key=lambda stage: -stage.cost.cpu):
            share, hint = self.share(stage), _HINTS.get(stage.transform)
            if share >= _LARGE_SHARE and hint:
                yield f"{stage.name} takes {share:.0%} of the CPU time: {hint}"

    def _sent(self) -> Iterator[str]:
        """Yields the transforms at the server that a trainer could run, if they make more bytes."""
        for stage in self.server_stages:
            is_finish = stage.transform in ("cast", "normalize", "one_hot")
            if is_finish and stage.bytes_out > stage.bytes_in:
                yield (
                    f"{stage.name} makes {stage.bytes_out / 1e3:,.0f} KB of "
                    f"{stage.bytes_in / 1e3:,.0f} KB before they are sent: at the end of the list "
                    "the trainer runs it, with the same result if the transforms behind it only "
                    "move or drop pixels"
                )

    def to_json(self) -> dict[str, Any]:
        """Returns the figures. Times are seconds per sample, rates per second; null: unknown."""
        run = self.run
        samples = self.batch_size * run.batches if run else 0
        return {
            "pipeline": self.name,
            "cores": self.cores,
            "batch_size": self.batch_size,
            "samples": self.samples,
            "bad_samples": {"count": self.bad_samples, "first": self.bad_example or None},
            "stages": [stage.to_json() for stage in self.stages],
            "wire_bytes": self.wire_bytes,
            "run": run
            and {
                "samples": samples,
                "seconds": run.seconds,
                "samples_per_second": samples / run.seconds,
                "cpu_seconds_per_sample": run.cpu_seconds / max(1, samples),
                "cores_used": run.cpu_seconds / run.seconds,
                "other_cores": run.cores - run.usable_cores,
            },
            "limit": self.limit,
            "advice": self.advice(),
        }
