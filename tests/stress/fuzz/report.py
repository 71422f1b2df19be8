"""What a run found, and how it is told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

_PRINTED = 20


@dataclass
class Report:
    """Collects what happens to the cases of one run. Thread-safe."""

    seed: int
    of: str
    """What was fuzzed."""
    ends: dict[str, Counter[str]] = field(default_factory=dict)
    """By kind: how many ended how."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cases(self) -> int:
        return sum(count.total() for count in self.ends.values())

    def outcome(self, case: object, how: str, seconds: float, problem: str | None) -> None:
        """One case: how it ended, after how long, and what is wrong with that."""
        kind = str(case).partition(":")[0]
        with self._lock:
            self.ends.setdefault(kind, Counter())[how] += 1
            self.slowest = max(self.slowest, (seconds, str(case)))
        if problem is not None:
            self.problem(f"{problem}\n    again: --seed {self.seed} --case {case}")

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)
            if len(self.problems) <= _PRINTED:
                print(f"VIOLATION: {text}", flush=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    def progress(self, of: int, more: str = "") -> None:
        seconds = time.monotonic() - self.began
        rate = self.cases / max(seconds, 1e-9)
        print(
            f"{self.of}: {self.cases} of {of} cases, {seconds:.0f} s, {rate:.0f}/s{more}",
            flush=True,
        )

    def __str__(self) -> str:
        wide = max((len(kind) for kind in self.ends), default=0)
        seconds = time.monotonic() - self.began
        lines = [f"{self.of}: {self.cases} cases in {seconds:.0f} s"]
        lines.append(f"{'kind':{wide}}  {'cases':>7}  ends")
        for kind, ends in sorted(self.ends.items()):
            told = ", ".join(f"{how} {count}" for how, count in ends.most_common())
            lines.append(f"{kind:{wide}}  {ends.total():7}  {told}")
        all_ends: Counter[str] = sum(self.ends.values(), Counter())
        told = ", ".join(f"{how} {count}" for how, count in all_ends.most_common())
        lines.append(f"{'all':{wide}}  {self.cases:7}  {told}")
        lines.append(f"slowest: {self.slowest[0]:.2f} s, {self.slowest[1]}")
        lines += self.notes
        lines.append(f"{len(self.problems)} violations, seed {self.seed}")
        return "\n".join(lines)
