"""What processes hold, look after look, and whether it stayed as it was."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

TOLERANCE_MB = 32.0
TOLERANCE_SHARE = 0.05
"""Of a process: what its memory may differ by and still be called flat, the larger of the two."""

TOLERANCE_HANDLES = 4.0
"""What open files and threads may differ by: those of requests that are just under way."""

_PARTS = 5
"""A curve's first part is its start; it is flat if the last is no higher than the second."""

_ROWS = 16
"""Of a table; the looks between them are left out."""


def handles(pid: int) -> tuple[int, int]:
    """Open files and threads of a process."""
    files, threads = (len(list(Path(f"/proc/{pid}/{what}").iterdir())) for what in ("fd", "task"))
    return files, threads


@dataclass(frozen=True)
class Check:
    """A figure and its bound."""

    what: str
    value: float
    limit: float
    at_least: bool = False
    unit: str = ""

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        bound = f"{'at least' if self.at_least else 'at most'} {self.limit:.3g}{self.unit}"
        told = "ok" if self.holds else "FAILED"
        return f"{told}: {self.what}: {self.value:.3g}{self.unit} ({bound})"


@dataclass
class Curve:
    """Looks at some processes: a row of figures each, under the same columns."""

    columns: Sequence[str]
    rows: list[tuple[str, list[float]]] = field(default_factory=list)

    def add(self, label: str, *figures: float) -> None:
        self.rows.append((label, list(figures)))

    def column(self, name: str) -> list[float]:
        index = self.columns.index(name)
        return [figures[index] for _, figures in self.rows]

    def flat(self, name: str, what: str) -> Check:
        """Whether a column of MB (a name that ends so) or of handles is as high in the end as
        after the start."""
        values = self.column(name)
        size = max(1, len(values) // _PARTS)
        begin, end = (statistics.median(part) for part in (values[size : 2 * size], values[-size:]))
        if name.endswith("MB"):
            limit, unit = max(TOLERANCE_MB, TOLERANCE_SHARE * begin), " MB"
        else:
            limit, unit = TOLERANCE_HANDLES, ""
        return Check(
            f"{what}: {name} rose from {begin:.0f} to {end:.0f}", end - begin, limit, unit=unit
        )

    def table(self, title: str, first: str) -> Table:
        table = Table(first, *self.columns, title=title, title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        step = max(1, -(-(len(self.rows) - 1) // _ROWS))
        for label, figures in [*self.rows[:-1:step], *self.rows[-1:]]:
            table.add_row(label, *(f"{figure:,.0f}" for figure in figures))
        return table


Tell = Callable[[object], None]
"""Shows a line or a table."""
