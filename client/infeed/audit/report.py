"""Report of an audit: values, findings and notes as text, and JSON."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from infeed.audit.outcome import MAX_EXAMPLES, AuditTotals, EpochTotals, Interval
from infeed.shared.spec import PipelineSpec, Remainder


@dataclass(frozen=True)
class AuditRun:
    """One run between two resumes: the steps of `world_size` ranks from position `base` on.

    `stride` is the number of positions in one batch.
    """

    base: int
    world_size: int
    stride: int
    steps: int

    @property
    def end(self) -> int:
        """The position after its last step."""
        return self.base + self.steps * self.world_size * self.stride

    def locate(self, position: int) -> str:
        """Returns the rank and the step of a position."""
        step, rest = divmod(position - self.base, self.world_size * self.stride)
        return f"rank {rest // self.stride} of {self.world_size}, step {step}"


@dataclass(frozen=True)
class AuditReport:
    """The result of `infeed.audit.audit`; `exact` sums it up.

    batch_size, seed, remainder   in force, whether chosen by the caller or by the pipeline
    runs        more than one where the ranks resumed from a cursor
    batches     the number of batches read, those without samples too
    seconds     the duration of the audit
    """

    spec: PipelineSpec
    batch_size: int
    seed: int
    remainder: Remainder
    runs: tuple[AuditRun, ...]
    outcome: AuditTotals
    batches: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether every sample of every epoch was delivered exactly once, or is accounted for."""
        return self.outcome.exact

    @property
    def epochs(self) -> tuple[EpochTotals, ...]:
        return self.outcome.epochs

    def total(self, name: str) -> int:
        """Returns the sum over all epochs of a field of `EpochTotals`, such as "lost"."""
        return sum(getattr(epoch, name) for epoch in self.epochs)

    def locate(self, position: int) -> str:
        """Returns the rank and the step of a position, such as "rank 1 of 3, step 4"."""
        number = max(0, bisect_right([run.base for run in self.runs], position) - 1)
        location = self.runs[number].locate(position)
        return location if len(self.runs) == 1 else f"run {number}, {location}"

    def findings(self) -> list[str]:
        """Returns what is not exact, a line each, the first few of each kind."""
        outcome = self.outcome
        findings = [f"{self._describe(gap)} not delivered" for gap in outcome.gaps]
        findings += [f"{self._describe(again)} delivered again" for again in outcome.again]
        if outcome.beyond:
            findings.append(
                f"{_count(outcome.beyond, 'position')} delivered after the end of the data at "
                f"position {outcome.end}"
            )
        for epoch in self.epochs:
            if not epoch.exact:
                findings += [f"epoch {epoch.epoch}: {text}" for text in self._epoch_findings(epoch)]
        return findings

    def notes(self) -> list[str]:
        """Returns what is accounted for and what an audit cannot detect, a line each."""
        spec, total = self.spec, self.total
        bad, left_out = "bad sample", _count(total("left_out"), "sample")
        is_sequential = not spec.is_remote and spec.guarantee.resume != "constant_time"
        drops_unknown = spec.sample_count is None and self.remainder == "drop"
        notes = {
            f"{_count(total('masked'), bad)} masked (on_error: mask)": total("masked"),
            f"{_count(total('substituted'), bad)} substituted (on_error: substitute): known to be "
            "bad, and not delivered": total("substituted"),
            "on_error: substitute fills the slots of bad samples with other samples, and a batch "
            "does not list them; to tell bad samples from lost ones, name the bad ones "
            "(--quarantine LOG)": spec.on_error == "substitute" and total("lost"),
            f"{left_out} left out at the end: not enough for a batch on every rank "
            "(remainder: drop)": total("left_out"),
            f"the engine {spec.engine} does not report the number of samples: the loss of samples "
            "above the highest id delivered is not detected": spec.is_remote,
            "the server reads a dataset sequentially and numbers its samples: what the dataset "
            "itself repeats or leaves out is not detected": is_sequential,
            "the length of the dataset is unknown: samples that did not fill the last batch are "
            "not counted": is_sequential and drops_unknown,
            f"the pipeline guarantees {spec.guarantee}: another audit can differ": (
                spec.guarantee.order == "none"
            ),
        }
        return [note for note, applies in notes.items() if applies]

    def to_json(self) -> dict[str, Any]:
        """Returns the report as values for `json.dumps`."""
        names = ("once", "more", "never", "left_out", "masked", "substituted", "lost")
        same = ("batch_size", "seed", "remainder", "exact", "batches")
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
            **{name: getattr(self, name) for name in same},
            "seconds": round(self.seconds, 3),
            "runs": list(map(asdict, self.runs)),
            "total": {name: self.total(name) for name in names},
            "positions": outcome,
            "epochs": epochs,
            "findings": self.findings(),
            "notes": self.notes(),
        }

    def _epoch_findings(self, epoch: EpochTotals) -> Iterator[str]:
        if not epoch.samples:
            yield "no sample delivered"
        if epoch.lost:
            # The first missing ids; those left out or masked look the same.
            ids = ", ".join(map(str, epoch.unseen))
            more = epoch.never - epoch.substituted - len(epoch.unseen)
            if more > 0 and len(epoch.unseen) == MAX_EXAMPLES:
                ids += f" and {more} more"
            among = "among " if epoch.left_out or epoch.masked else ""
            yield f"{_count(epoch.lost, 'sample')} lost: {among}{ids}"
        for repeat in epoch.repeats:
            first, again = self._at(repeat.first), self._at(repeat.again)
            yield f"sample {repeat.sample_id} delivered {first}, and again {again}"
        if more := epoch.surplus - len(epoch.repeats):
            yield f"{more} more slots with a repeated sample"
        for unknown in epoch.unknown:
            yield (
                f"unknown sample id {unknown.sample_id} {self._at(unknown.position)}; the pipeline "
                f"has {_count(epoch.samples, 'sample')}"
            )
        if more := epoch.strangers - len(epoch.unknown):
            yield f"{more} more slots with an unknown sample id"

    def _at(self, position: int) -> str:
        return f"at position {position} ({self.locate(position)})"

    def _describe(self, interval: Interval) -> str:
        begin, last = interval[0], interval[1] - 1
        if begin == last:
            return f"position {begin} ({self.locate(begin)})"
        locations = dict.fromkeys((self.locate(begin), self.locate(last)))
        return f"positions {begin} to {last} ({', to '.join(locations)})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
