"""Docstrings as Markdown, for the API pages of the site: an extension of griffe."""

from __future__ import annotations

import inspect
import pydoc
import re
from typing import Any

import griffe
from tools.columns import COLUMN


class AsMarkdown(griffe.Extension):
    """Lists of names in two columns become lists of Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replaces the docstring of an object that has been read."""
        if obj.docstring:
            text = obj.docstring.value
            if re.search(r"^OPTIONS$", text, re.MULTILINE):  # which the import replaces
                text = inspect.getdoc(pydoc.locate(obj.path)) or ""
            obj.docstring.value = as_markdown(text)


def as_markdown(docstring: str) -> str:
    """Returns the docstring with a list item for each name that it lists in two columns."""
    lines: list[str] = []
    in_list = False
    for line in docstring.splitlines():
        if match := COLUMN.fullmatch(line):
            if not in_list:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in match[1].split(", "))
            lines.append(f"- {names}: {match[2]}")
            in_list = True
        elif in_list and line.startswith("  "):
            lines.append(f"    {line.strip()}")
        else:
            if in_list and line:
                lines.append("")
            in_list = False
            lines.append(line)
    return "\n".join(lines)
