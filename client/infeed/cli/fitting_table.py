"""Table for a terminal of any width, which leaves out whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNBOUNDED_WIDTH = 10_000
"""Characters: more than any table needs."""


class FittingTable:
    """A table of any width: columns that do not fit are left out, least important first.

    rich would make all columns narrower, down to a letter: a terminal often has 80 characters.
    """

    def __init__(
        self, *columns: str, text: Iterable[str] = (), optional: Sequence[str] = ()
    ) -> None:
        """`text` names the columns that have text, which may take several lines, and not numbers;
        `optional` those that can be left out, the first one first."""
        self._columns = columns
        self._text = frozenset(text)
        self._optional = tuple(optional)
        self._rows: list[tuple[dict[str, Text], str]] = []

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Adds a row with a cell for each column."""
        texts = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
        self._rows.append((dict(zip(self._columns, texts, strict=True)), style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(width=_UNBOUNDED_WIDTH)
        for count in range(len(self._optional) + 1):
            table = self._table(self._optional[:count])
            if Measurement.get(console, unbounded, table).minimum <= options.max_width:
                break
        yield table

    def _table(self, left_out: Sequence[str]) -> Table:
        shown = [name for name in self._columns if name not in left_out]
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in shown:
            if name in self._text:
                table.add_column(name)
                continue
            width = max(len(name), *(row[name].cell_len for row, _ in self._rows), 0)
            table.add_column(name, justify="right", no_wrap=True, min_width=width)
        for row, style in self._rows:
            table.add_row(*(row[name] for name in shown), style=style)
        return table
