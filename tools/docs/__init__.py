"""Generated tables of the documents: `make docs` writes them, `make lint` compares them.

A page holds a table between two markers:

    <!-- generated: options.shuffle -->
    <!-- end -->

The name selects the table; its rows, defaults and texts come from the code, those of benchmarks
from their published results. `pages` writes tables into pages; every other module makes some.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.docs import benchmarks, commands, definitions, metrics, python_api, wire
from tools.docs.markdown import DocsError, Table
from tools.docs.pages import diffs, write


def all_tables() -> dict[str, Table]:
    """Makes every table. Raises `DocsError` for code without the text of a row."""
    return {
        name: table
        for module in (definitions, python_api, commands, metrics, benchmarks, wire)
        for name, table in module.tables().items()
    }


def run(root: Path, make_tables: Callable[[], Mapping[str, Table]], *, check: bool) -> int:
    """Writes the pages below `root`, or with `check` compares them; returns the exit status."""
    try:
        tables = make_tables()
        if not check:
            for page in write(root, tables):
                print(f"{page}: written")
            return 0
        stale = diffs(root, tables)
    except DocsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for page, diff in stale.items():
        print(diff, end="")
        print(f"{page}: a table differs from the code; run make docs", file=sys.stderr, flush=True)
    return 1 if stale else 0
