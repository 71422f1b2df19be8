"""Results of a run, saved case by case and shown as a table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.duel import Plan
from benchmarks.findings import Finding, rounded
from rich.table import Table


@dataclass(frozen=True)
class Outcome:
    """Findings of one case, or its error."""

    findings: Sequence[Finding] = ()
    error: str | None = None
    plan: Plan | None = None
    load: float = 0.0
    """The machine's load in the minute before: much above 0, other processes were running."""
    time: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%S"))

    def to_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "plan": self.plan and vars(self.plan),
            "load": self.load,
            "error": self.error,
            "findings": [finding.to_json() for finding in self.findings],
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Outcome:
        findings = [Finding.from_json(finding) for finding in saved["findings"]]
        plan = saved["plan"] and Plan(**saved["plan"])
        return cls(findings, saved["error"], plan, saved["load"], saved["time"])


class Results:
    """Outcomes of all cases, saved to a file."""

    def __init__(self, file: Path, machine: dict[str, str]) -> None:
        self._file = file
        self.machine = machine
        self.outcomes: dict[str, Outcome] = {}

    def keep_earlier(self) -> None:
        """Loads the file's outcomes if they are from the same machine and software."""
        if not self._file.exists():
            return
        saved = json.loads(self._file.read_text())
        if saved["machine"] == self.machine:
            cases = saved["cases"].items()
            self.outcomes = {name: Outcome.from_json(outcome) for name, outcome in cases}

    def add(self, name: str, outcome: Outcome) -> None:
        """Saves the outcome to disk at once: the next case may be interrupted."""
        self.outcomes[name] = outcome
        cases = {name: outcome.to_json() for name, outcome in self.outcomes.items()}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({"machine": self.machine, "cases": cases}, indent=2))
        unfinished.replace(self._file)


def table(outcomes: dict[str, Outcome]) -> Table:
    """Returns a table with one row per measure: medians of the figures, and of the ratios."""
    rows = Table(
        "case", "measure", "infeed", "peer", "ratio", "min..max", "target", "", box=None,
        header_style="bold", pad_edge=False,
    )  # fmt: skip
    for name, outcome in outcomes.items():
        if outcome.error is not None:
            rows.add_row(name, "failed", *[""] * 5, "[red]failed")
        for number, finding in enumerate(outcome.findings):
            rows.add_row("" if number else name, finding.measure, *_cells(finding))
    return rows


def _cells(finding: Finding) -> tuple[str, ...]:
    ours, theirs, ratios = finding.ours, finding.theirs, finding.ratios
    label = "" if ours.name == "infeed" else f" ({ours.name})"
    target = "" if finding.target is None else str(finding.target)
    return (
        f"{rounded(ours.median)}{label}",
        "" if theirs is None else f"{rounded(theirs.median)} ({theirs.name})",
        f"{finding.ratio:.2f}" if ratios else "",
        f"{min(ratios):.2f}..{max(ratios):.2f}" if ratios else "",
        target,
        {None: "", True: "[green]reached", False: "[red]missed"}[finding.is_reached],
    )
