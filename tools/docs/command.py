"""The work of the command: writing or comparing all pages, and its output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.docs.errors import DocsError
from tools.docs.markdown import Table
from tools.docs.pages import diffs, write


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
