"""Pages: the Markdown files with markers, between which the tables are written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from tools.docs.markdown import DocsError, Table, link_definitions

ROOT = Path(__file__).resolve().parents[2]

BEGIN, END = "<!-- generated: {} -->", "<!-- end -->"
_TABLE = re.compile(rf"^<!-- generated: (\S+) -->$.*?^{END}$", re.MULTILINE | re.DOTALL)


def write(root: Path, tables: Mapping[str, Table]) -> list[str]:
    """Writes the tables into the pages below `root`; returns the pages that changed."""
    changed = _changed_pages(root, tables)
    for page, (_, new) in changed.items():
        (root / page).write_text(new, encoding="utf-8")
    return list(changed)


def diffs(root: Path, tables: Mapping[str, Table]) -> dict[str, str]:
    """Returns page → difference from what `write` would write, of the pages that differ."""
    result = {}
    for page, (old, new) in _changed_pages(root, tables).items():
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), page, "make docs", n=1
        )
        result[page] = "".join(lines)
    return result


def fill(page: str, text: str, tables: Mapping[str, Table]) -> tuple[str, list[str]]:
    """Returns the page with its tables, and their names. Raises `DocsError` for a wrong marker."""
    links = link_definitions(text)
    names: list[str] = []

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in tables:
            raise DocsError(f"{page}: no table {name!r}; tables: {', '.join(sorted(tables))}")
        names.append(name)
        return "\n".join([BEGIN.format(name), "", *tables[name].render(links), "", END])

    filled = _TABLE.sub(table, text)
    lines = text.splitlines()
    begins = [line for line in lines if line.startswith(BEGIN.partition("{}")[0])]
    if not len(begins) == lines.count(END) == len(names):
        raise DocsError(f"{page}: {BEGIN.format('NAME')} without {END}, or the reverse")
    for label in links:
        # Once in its definition, and at least once as a link.
        if filled.lower().count(f"[{label.lower()}]") < 2:
            raise DocsError(f"{page}: no text for the link [{label}]; correct its definition")
    return filled, names


def _changed_pages(root: Path, tables: Mapping[str, Table]) -> dict[str, tuple[str, str]]:
    """Returns page → its text and the text with the tables, of the pages that differ."""
    changed = {}
    used: set[str] = set()
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        page = path.relative_to(root).as_posix()
        old = path.read_text(encoding="utf-8")
        new, names = fill(page, old, tables)
        used.update(names)
        if new != old:
            changed[page] = (old, new)
    if unused := [name for name in tables if name not in used]:
        raise DocsError(
            f"no page has {', '.join(unused)}; where such a table belongs, add the lines "
            f"{BEGIN.format(unused[0])} and {END}"
        )
    return changed
