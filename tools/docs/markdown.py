"""Markdown tables, and the text of their cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

_CODE_SPAN = re.compile(r"(`[^`]*`)")


class DocsError(Exception):
    """A marker is wrong, or the code lacks the text of a row; the message names the place."""


class Table(NamedTuple):
    """A table: the names of its columns, and the cells of each row. Neighbours that differ in the
    first cell alone share a line."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def render(self, links: Mapping[str, str]) -> list[str]:
        """Returns the lines of the table; `links` are the page's: label → target."""
        lines = [_line(self.columns), "|---" * len(self.columns) + "|"]
        for rest, rows in groupby(self.rows, key=lambda row: row[1:]):
            cells = (", ".join(row[0] for row in rows), *rest)
            lines.append(_line(add_links(cell.replace("|", r"\|"), links) for cell in cells))
        return lines


def _line(cells: Iterable[str]) -> str:
    return re.sub(r" +", " ", f"| {' | '.join(cells)} |")


def code(text: object) -> str:
    """Returns the text as a code span."""
    return f"`{text}`"


def cell(text: str) -> str:
    """Returns a sentence of a docstring in the style of a cell: lower case, no final full stop."""
    text = " ".join(text.split()).removesuffix(".")
    first = text.partition(" ")[0]
    is_name = any(letter.isupper() for letter in first[1:])
    return text if is_name else text[:1].lower() + text[1:]


def link_definitions(page: str) -> dict[str, str]:
    """Returns the links that a page defines in lines of the form `[label]: target`."""
    return dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", page, re.MULTILINE))


def add_links(text: str, links: Mapping[str, str]) -> str:
    """Makes the first occurrence of each label a link; a code span becomes one only as a whole."""
    if not links:
        return text
    longest_first = sorted(links, key=len, reverse=True)
    label = re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})\b", re.IGNORECASE)
    seen: set[str] = set()

    def add_link(match: re.Match[str]) -> str:
        name = match[0].lower()
        if name in seen:
            return match[0]
        seen.add(name)
        return f"[{match[0]}]"

    # Code spans are at the odd positions.
    parts = _CODE_SPAN.split(text)
    parts[::2] = [label.sub(add_link, part) for part in parts[::2]]
    parts[1::2] = [f"[{part}]" if part in links else part for part in parts[1::2]]
    return "".join(parts)
