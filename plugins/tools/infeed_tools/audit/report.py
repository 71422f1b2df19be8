"""Report of an audit: values, findings and notes as text, and JSON."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from infeed.shared.spec import PipelineSpec, Remainder
from infeed_tools.audit.outcome import MAX_EXAMPLES, AuditTotals, EpochTotals, Interval


@dataclass(frozen=True)
class AuditRun:
    """One run between two resumes: the steps of `world_size` ranks from position `base` on."""

    base: int
    world_size: int
    stride: int
    """Positions in one batch."""
    steps: int

    @property
    def end(self) -> int:
        """The position after its last step."""
        return self.base + self.steps * self.world_size * self.stride


@dataclass(frozen=True)
class AuditReport:
    """The result of `infeed.audit.audit`; `exact` sums it up.

    Batch size, seed and remainder are those in force, the caller's or the pipeline's. Each resume
    from a cursor begins another run. `batches` includes batches without samples.
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
        """Whether every sample of every epoch was delivered exactly once or is accounted for."""
        return self.outcome.exact

    @property
    def _skips(self) -> bool:
        """Whether the definition skips steps."""
        return len(self.spec.lineage) > 1

    @property
    def _removes(self) -> bool:
        """Whether the definition removes samples."""
        return any(segment.removed for segment in self.spec.lineage)

    @property
    def epochs(self) -> tuple[EpochTotals, ...]:
        return self.outcome.epochs

    def total(self, name: str) -> int:
        """Returns the sum over all epochs of a field of `EpochTotals`, such as "lost"."""
        return sum(getattr(epoch, name) for epoch in self.epochs)

    def findings(self) -> list[str]:
        """Returns the errors found, a line each, the first few of each kind."""
        outcome = self.outcome
        findings = [f"{self._describe(gap)} not delivered" for gap in outcome.gaps]
        findings += [f"{self._describe(again)} delivered again" for again in outcome.again]
        if outcome.beyond:
            findings.append(
                f"{plural(outcome.beyond, 'position')} delivered after the data's end at position "
                f"{outcome.end}"
            )
        findings += [
            f"part {part.name}: its samples came {part.least} to {part.most} times"
            for part in outcome.parts
            if not part.exact
        ]
        for epoch in self.epochs:
            if not epoch.exact:
                findings += [f"epoch {epoch.epoch}: {text}" for text in self._epoch_findings(epoch)]
        return findings

    def notes(self) -> list[str]:
        """Returns what is accounted for and what an audit cannot detect, a line each."""
        spec, total = self.spec, self.total
        is_sequential = not spec.is_remote and not spec.guarantee.has_random_access
        drops_unknown = spec.sample_count is None and self.remainder == "drop"
        notes = {
            f"{plural(total('masked'), 'bad sample')} masked (on_error: mask)": total("masked"),
            f"{plural(total('substituted'), 'bad sample')} substituted (on_error: substitute): "
            "known to be bad and not delivered": total("substituted") and not self._removes,
            f"{plural(total('substituted'), 'sample')} substituted: removed by the definition, or "
            "known to be bad": total("substituted") and self._removes,
            "on_error: substitute fills the slots of bad samples with others, and a batch does not "
            "show which; to tell bad samples from lost ones, list the bad ones with "
            "--quarantine LOG": spec.on_error == "substitute"
            and (total("lost") or not all(part.exact for part in self.outcome.parts)),
            f"{plural(total('left_out'), 'sample')} left out at the end: too few for a batch on "
            "every rank (remainder: drop)": total("left_out") and not self._skips,
            f"{plural(total('left_out'), 'sample')} left out: in skipped steps, or at the end": (
                total("left_out") and self._skips
            ),
            f"the engine {spec.engine} does not report the number of samples: the audit cannot "
            "detect lost samples above the highest delivered id": spec.is_remote,
            "the server reads a dataset sequentially and numbers its samples: the audit cannot "
            "detect samples that the dataset itself repeats or leaves out": is_sequential,
            "the length of the dataset is unknown: samples that did not fill the last batch are "
            "not counted": is_sequential and drops_unknown,
            f"the pipeline guarantees {spec.guarantee}: another audit may differ": (
                spec.guarantee.order == "none"
            ),
        }
        return [note for note, applies in notes.items() if applies]

    def to_json(self) -> dict[str, Any]:
        """Returns the report as values for `json.dumps`."""
        names = ("once", "more", "never", "left_out", "masked", "substituted", "lost")
        same = ("batch_size", "seed", "remainder", "exact", "batches", "seconds")
        positions = asdict(self.outcome)
        epochs = positions.pop("epochs")
        for values, epoch in zip(epochs, self.epochs, strict=True):
            values["exact"] = epoch.exact
        return {
            "pipeline": self.spec.name,
            "fingerprint": self.spec.fingerprint,
            "guarantee": asdict(self.spec.guarantee),
            "on_error": self.spec.on_error,
            **{name: getattr(self, name) for name in same},
            "runs": list(map(asdict, self.runs)),
            "total": {name: self.total(name) for name in names},
            "positions": positions,
            "epochs": epochs,
            "findings": self.findings(),
            "notes": self.notes(),
        }

    def _epoch_findings(self, epoch: EpochTotals) -> Iterator[str]:
        if not epoch.samples:
            yield "no sample delivered"
        if epoch.lost:
            # The first missing ids: ids left out or masked look the same.
            ids = ", ".join(map(str, epoch.unseen))
            more = epoch.never - epoch.substituted - len(epoch.unseen)
            if more > 0 and len(epoch.unseen) == MAX_EXAMPLES:
                ids += f" and {more} more"
            among = "among " if epoch.left_out or epoch.masked else ""
            yield f"{plural(epoch.lost, 'sample')} lost: {among}{ids}"
        for slot in epoch.repeats:
            yield f"sample {slot.sample_id} delivered again {self._at(slot.position)}"
        if more := epoch.surplus - len(epoch.repeats):
            yield f"{more} more slots with a repeated sample"
        for slot in epoch.unknown:
            has = f"the pipeline has {plural(epoch.samples, 'sample')}"
            yield f"unknown sample id {slot.sample_id} {self._at(slot.position)}; {has}"
        if more := epoch.strangers - len(epoch.unknown):
            yield f"{more} more slots with an unknown sample id"

    def _at(self, position: int) -> str:
        return f"at position {position} ({self._locate(position)})"

    def _locate(self, position: int) -> str:
        """Returns the rank and the step of a position, such as "rank 1 of 3, step 4"."""
        number = max(0, bisect_right([run.base for run in self.runs], position) - 1)
        run = self.runs[number]
        step, rest = divmod(position - run.base, run.world_size * run.stride)
        location = f"rank {rest // run.stride} of {run.world_size}, step {step}"
        return location if len(self.runs) == 1 else f"run {number}, {location}"

    def _describe(self, interval: Interval) -> str:
        ends = dict.fromkeys((interval[0], interval[1] - 1))
        locations = ", to ".join(dict.fromkeys(map(self._locate, ends)))
        plural = "s" * (len(ends) > 1)
        return f"position{plural} {' to '.join(map(str, ends))} ({locations})"


def plural(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "3 samples"."""
    return f"{number} {noun}{'s' * (number != 1)}"
