"""Report of a run: outcomes by kind of case, and violations."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

_MAX_PRINTED = 20
"""Violations that are printed at once; the report counts all."""


@dataclass
class Report:
    """Outcomes of the cases of one run. Thread-safe."""

    seed: int
    target: str
    """Name of the fuzzed program."""
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Number of cases by outcome, for each kind."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    begin: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cases(self) -> int:
        return sum(count.total() for count in self.outcomes.values())

    def record(self, case: object, outcome: str, problem: str | None) -> None:
        """Records one case with its outcome and its problem, if any."""
        with self._lock:
            self.outcomes[str(case).partition(":")[0]][outcome] += 1
        if problem is not None:
            self.add_problem(f"{problem}\n    again: --seed {self.seed} --case {case}")

    def add_problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)
            if len(self.problems) <= _MAX_PRINTED:
                print(f"VIOLATION: {text}", flush=True)

    def __str__(self) -> str:
        width = max(map(len, self.outcomes), default=0)
        lines = [f"{self.target}: {self.cases} cases in {time.monotonic() - self.begin:.0f} s"]
        for kind, counts in sorted(self.outcomes.items()):
            ends = ", ".join(f"{outcome} {count}" for outcome, count in counts.most_common())
            lines.append(f"{kind:{width}}  {counts.total():7}  {ends}")
        lines += [*self.notes, f"{len(self.problems)} violations, seed {self.seed}"]
        return "\n".join(lines)
