"""Curves of the resources that processes hold, and checks that they stay flat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

TOLERANCE_MB = 48.0
TOLERANCE_SHARE = 0.05
"""Maximum growth of a flat memory curve: the larger of this many MB and this share. A server keeps
the freed memory of as many batches as were in progress at once: more on a busy machine."""

TOLERANCE_HANDLES = 4.0
"""Maximum growth of open files and threads: handles of requests in progress."""

_PARTS = 5
"""Parts of a curve. The first is the start-up; a flat curve's last is no higher than its second."""

_MAX_ROWS = 16
"""Rows of a table; samples in between are left out."""


def handle_counts(pid: int) -> tuple[int, int]:
    """Returns the numbers of open files and threads of a process."""
    files, threads = (len(list(Path(f"/proc/{pid}/{kind}").iterdir())) for kind in ("fd", "task"))
    return files, threads


@dataclass(frozen=True)
class Check:
    """Figure with its bound."""

    name: str
    value: float
    limit: float
    at_least: bool = False
    unit: str = ""

    @property
    def passed(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        bound = f"{'at least' if self.at_least else 'at most'} {self.limit:.3g}{self.unit}"
        result = "ok" if self.passed else "FAILED"
        return f"{result}: {self.name}: {self.value:.3g}{self.unit} ({bound})"


@dataclass
class Curve:
    """Samples of some processes: a row of figures each, with the same columns."""

    columns: Sequence[str]
    rows: list[tuple[str, list[float]]] = field(default_factory=list)

    def add(self, label: str, *figures: float) -> None:
        self.rows.append((label, list(figures)))

    def column(self, name: str) -> list[float]:
        index = self.columns.index(name)
        return [figures[index] for _, figures in self.rows]

    def check_flat(self, name: str, run: str) -> Check:
        """Returns a check that a column does not grow from the second part to the last.

        Columns whose names end with MB hold memory, the others counts of files or threads.
        """
        values = self.column(name)
        size = max(1, len(values) // _PARTS)
        # What leaks is in every figure of a part, what will be freed is not in its least.
        begin, end = min(values[size : 2 * size]), min(values[-size:])
        if name.endswith("MB"):
            limit, unit = max(TOLERANCE_MB, TOLERANCE_SHARE * begin), " MB"
        else:
            limit, unit = TOLERANCE_HANDLES, ""
        return Check(
            f"{run}: {name} rose from {begin:.0f} to {end:.0f}", end - begin, limit, unit=unit
        )

    def table(self, title: str, first: str) -> Table:
        table = Table(first, *self.columns, title=title, title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        step = max(1, -(-(len(self.rows) - 1) // _MAX_ROWS))
        for label, figures in [*self.rows[:-1:step], *self.rows[-1:]]:
            table.add_row(label, *(f"{figure:,.0f}" for figure in figures))
        return table


Show = Callable[[object], None]
"""Prints a line or a table."""
