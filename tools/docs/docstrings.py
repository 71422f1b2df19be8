"""Docstrings of attributes, which Python does not keep, and the parts of classes' docstrings."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tools.columns import COLUMN
from tools.docs.markdown import DocsError

_PLUGINS = Path(__file__).parents[2] / "plugins"

PACKAGES = ("infeed", "infeed_server", *(path.name for path in _PLUGINS.glob("*/infeed_*")))
"""The packages whose classes are read; base classes of others have no options."""


def attribute_docstring(cls: type, name: str) -> str:
    """Returns the string below an attribute in the class or in its nearest base class with one."""
    for base in cls.__mro__:
        in_package = base.__module__.partition(".")[0] in PACKAGES
        if in_package and (text := _attributes(base).get(name)):
            return text
    raise DocsError(
        f"{cls.__module__}.{cls.__qualname__}.{name} has no docstring, which is its text in a table"
    )


@cache
def _attributes(cls: type) -> dict[str, str]:
    body = next(
        node.body
        for node in ast.walk(_parse(str(inspect.getsourcefile(cls))))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    docstrings = {}
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docstrings[name] = inspect.cleandoc(text)
    return docstrings


@cache
def _parse(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def first_paragraph(documented: Any) -> str:
    """Returns the first paragraph of a docstring on one line."""
    return _paragraphs(documented)[0]


def labelled_paragraph(documented: Any, label: str) -> str | None:
    """Returns the text of the paragraph that begins with `Label:`, None if there is none."""
    for paragraph in _paragraphs(documented):
        if paragraph.startswith(f"{label}: "):
            return paragraph.partition(": ")[2]
    return None


def required_paragraph(documented: Any, label: str) -> str:
    """Returns the text of the paragraph that begins with `Label:`."""
    if (text := labelled_paragraph(documented, label)) is None:
        raise DocsError(f"{documented!r}: its docstring has no paragraph '{label}: '")
    return text


def _paragraphs(documented: Any) -> list[str]:
    docstring = documented if isinstance(documented, str) else inspect.getdoc(documented)
    if not docstring:
        raise DocsError(f"{documented!r} has no docstring, which is its text in a table")
    return [" ".join(item.split()) for item in docstring.split("\n\n")]


def listed_names(documented: Any) -> dict[str, str]:
    """Returns the texts of the names that a docstring lists in two columns, as `connect` does."""
    texts: dict[str, str] = {}
    current: list[str] = []
    for line in (inspect.getdoc(documented) or "").splitlines():
        if match := COLUMN.fullmatch(line):
            current = match[1].split(", ")
            texts |= dict.fromkeys(current, match[2])
        elif line.startswith("  ") and current:
            texts |= {name: f"{texts[name]} {line.strip()}" for name in current}
        else:
            current = []
    return texts
