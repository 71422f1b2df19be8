"""What an audit found: plain values, sentences for people, JSON for machines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from infeed.outcome import EpochOutcome, Outcome
from infeed.sightings import EXAMPLES
from infeed.spans import Span
from infeed.spec import PipelineSpec, Remainder


@dataclass(frozen=True)
class Run:
    """One stretch of the walk: `world_size` ranks took that many steps from position `base` on.

    `stride` is the positions of one batch.
    """

    base: int
    world_size: int
    stride: int
    steps: int

    def place(self, position: int) -> str:
        """Who takes a position, and at which of this run's steps."""
        step, rest = divmod(position - self.base, self.world_size * self.stride)
        return f"rank {rest // self.stride} of {self.world_size}, step {step}"


@dataclass(frozen=True)
class Audit:
    """The result of `infeed.audit.audit`; `exact` says it in a word.

    batch_size, remainder, seed   as they were, whoever chose them
    runs        more than one where the walk was resumed on the way
    batches     that came, empty ones too
    seconds     that the walk took
    """

    spec: PipelineSpec
    batch_size: int
    seed: int
    remainder: Remainder
    runs: tuple[Run, ...]
    outcome: Outcome
    batches: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether every sample of every epoch came exactly once, or is accounted for."""
        return self.outcome.exact

    @property
    def epochs(self) -> tuple[EpochOutcome, ...]:
        return self.outcome.epochs

    def total(self, number: str) -> int:
        """One number of every `EpochOutcome`, such as "once" or "lost", over all epochs."""
        return sum(getattr(epoch, number) for epoch in self.epochs)

    def place(self, position: int) -> str:
        """Who took a position and when, such as "rank 1 of 3, step 4"."""
        number = max(0, bisect_right([run.base for run in self.runs], position) - 1)
        told = self.runs[number].place(position)
        return told if len(self.runs) == 1 else f"run {number}, {told}"

    def findings(self) -> list[str]:
        """What is wrong, a sentence each; the first few of each kind. Empty if it was exact."""
        found = [f"{self._span(span)} never came" for span in self.outcome.gaps]
        found += [f"{self._span(span)} came again" for span in self.outcome.again]
        if self.outcome.beyond:
            found.append(
                f"{_many(self.outcome.beyond, 'position')} came from {self.outcome.end} on, where "
                "the data ends"
            )
        for epoch in self.epochs:
            if not epoch.exact:
                found += [f"epoch {epoch.epoch}: {told}" for told in self._wrong(epoch)]
        return found

    def notes(self) -> list[str]:
        """What has to be known to read the result: what is accounted for, and what can't be."""
        told = []
        if masked := self.total("masked"):
            told.append(f"{_many(masked, 'bad sample')} masked, as on_error: mask says")
        if substituted := self.total("substituted"):
            told.append(
                f"{_many(substituted, 'bad sample')} substituted, as on_error: substitute says: "
                "each is known to be bad, and came in no slot"
            )
        if self.spec.on_error == "substitute" and self.total("lost"):
            told.append(
                "on_error: substitute puts other samples in the slots of bad ones, and a batch "
                "does not say where; name the bad ones (--quarantine LOG) to have them told apart"
            )
        if left_out := self.total("left_out"):
            told.append(
                f"{_many(left_out, 'sample')} left out at the end, as they fill no batch on every "
                "rank (remainder: drop)"
            )
        if self.spec.engine == "tf_data_service":
            told.append(
                "the workers do not tell how many samples there are: those behind the highest "
                "that came would not be missed"
            )
        elif self.spec.guarantee.resume != "constant_time":
            told.append(
                "the server reads a data set from its front and numbers what it reads: what the "
                "data set itself repeats or leaves out is not seen"
            )
            if self.spec.sample_count is None and self.remainder == "drop":
                told.append("its length is unknown: what did not fill the last batch is not seen")
        if self.spec.guarantee.order == "none":
            told.append(f"the pipeline promises {self.spec.guarantee}: another walk can differ")
        return told

    def to_json(self) -> dict[str, Any]:
        """All of it, fit for JSON."""
        kinds = ("once", "more", "never", "left_out", "masked", "substituted", "lost")
        outcome = asdict(self.outcome)
        epochs = [
            {**values, "exact": epoch.exact}
            for values, epoch in zip(outcome.pop("epochs"), self.epochs, strict=True)
        ]
        return {
            "pipeline": self.spec.name,
            "fingerprint": self.spec.fingerprint,
            "guarantee": asdict(self.spec.guarantee),
            "on_error": self.spec.on_error,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "remainder": self.remainder,
            "exact": self.exact,
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "runs": [asdict(run) for run in self.runs],
            "total": {kind: self.total(kind) for kind in kinds},
            "positions": outcome,
            "epochs": epochs,
            "findings": self.findings(),
            "notes": self.notes(),
        }

    def _wrong(self, epoch: EpochOutcome) -> Iterator[str]:
        if not epoch.samples:
            yield "no sample of it came"
        if epoch.lost:
            yield f"{_many(epoch.lost, 'sample')} lost: {_some(epoch)}"
        for repeat in epoch.repeats:
            first = "earlier" if repeat.first is None else self._at(repeat.first)
            yield f"sample {repeat.sample_id} came {first}, and again {self._at(repeat.again)}"
        if epoch.surplus > len(epoch.repeats):
            yield f"{epoch.surplus - len(epoch.repeats)} more slots hold what came before"
        for stranger in epoch.unknown:
            yield (
                f"sample id {stranger.sample_id} came {self._at(stranger.position)}; the "
                f"pipeline has {_many(epoch.samples, 'sample')}"
            )
        if epoch.strangers > len(epoch.unknown):
            yield f"{epoch.strangers - len(epoch.unknown)} more slots hold an id it does not have"

    def _at(self, position: int) -> str:
        return f"at position {position} ({self.place(position)})"

    def _span(self, span: Span) -> str:
        begin, last = span[0], span[1] - 1
        if begin == last:
            return f"position {begin} ({self.place(begin)})"
        places = dict.fromkeys((self.place(begin), self.place(last)))
        return f"positions {begin} to {last} ({', to '.join(places)})"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _some(epoch: EpochOutcome) -> str:
    """The lost ids; where others were left out, nobody knows which of them are lost."""
    ids = ", ".join(map(str, epoch.unseen))
    more = epoch.never - epoch.substituted - len(epoch.unseen)
    told = f"{ids} and {more} more" if more > 0 and len(epoch.unseen) == EXAMPLES else ids
    return f"among {told}" if epoch.left_out or epoch.masked else told


__all__ = ["Audit", "Run"]
