"""The catalog of all tables by name."""

from __future__ import annotations

from tools.docs import commands, definitions, error_tree, metrics, python_api
from tools.docs.markdown import Table


def all_tables() -> dict[str, Table]:
    """Makes every table. Raises `DocsError` for code without the text of a row."""
    return {
        **definitions.tables(),
        **python_api.tables(),
        **commands.tables(),
        **error_tree.tables(),
        **metrics.tables(),
    }
