"""The error of the tool, for a page or a docstring that a table cannot be made for."""

from __future__ import annotations


class DocsError(Exception):
    """A marker is wrong, or the code lacks the text of a row; the message names the place."""
