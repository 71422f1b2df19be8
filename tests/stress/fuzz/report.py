"""Report of a run: outcomes by kind of case, and violations."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

_MAX_PRINTED = 20
"""Violations that are printed at once; the report counts all."""


@dataclass
class Report:
    """Outcomes of the cases of one run. Thread-safe."""

    seed: int
    target: str
    """Name of the fuzzed program."""
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """Number of cases by outcome, for each kind."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    begin: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cases(self) -> int:
        return sum(count.total() for count in self.outcomes.values())

    def record(self, case: object, outcome: str, seconds: float, problem: str | None) -> None:
        """Records one case with its outcome, its duration, and its problem, if any."""
        kind = str(case).partition(":")[0]
        with self._lock:
            self.outcomes.setdefault(kind, Counter())[outcome] += 1
            self.slowest = max(self.slowest, (seconds, str(case)))
        if problem is not None:
            self.add_problem(f"{problem}\n    again: --seed {self.seed} --case {case}")

    def add_problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)
            if len(self.problems) <= _MAX_PRINTED:
                print(f"VIOLATION: {text}", flush=True)

    def add_note(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    def print_progress(self, total: int, details: str = "") -> None:
        seconds = time.monotonic() - self.begin
        rate = self.cases / max(seconds, 1e-9)
        print(
            f"{self.target}: {self.cases} of {total} cases, {seconds:.0f} s, {rate:.0f}/s{details}",
            flush=True,
        )

    def __str__(self) -> str:
        width = max((len(kind) for kind in self.outcomes), default=0)
        seconds = time.monotonic() - self.begin
        lines = [f"{self.target}: {self.cases} cases in {seconds:.0f} s"]
        lines.append(f"{'kind':{width}}  {'cases':>7}  ends")
        for kind, counts in sorted(self.outcomes.items()):
            lines.append(f"{kind:{width}}  {counts.total():7}  {_counts_text(counts)}")
        total: Counter[str] = sum(self.outcomes.values(), Counter())
        lines.append(f"{'all':{width}}  {self.cases:7}  {_counts_text(total)}")
        lines.append(f"slowest: {self.slowest[0]:.2f} s, {self.slowest[1]}")
        lines += self.notes
        lines.append(f"{len(self.problems)} violations, seed {self.seed}")
        return "\n".join(lines)


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in counts.most_common())
