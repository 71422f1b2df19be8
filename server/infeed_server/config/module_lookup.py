"""Lookup of modules and their names without importing them, so that no code of the user runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from infeed_server.config.model import did_you_mean

_MAX_LISTED = 12
"""Names of a module that a message lists."""

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The parts of a statement that hold statements of the module's own level."""


def explain_missing(name: str) -> str | None:
    """Returns why nothing has the name `module:attr`; None if something has, or may have it.

    A file that assigns its names in another way than by statements may have any.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        return f"{name!r} is not of the form module:attr"
    spec = find_spec(module)
    if spec is None:
        hint = did_you_mean(module, sorted(_modules_nearby()))
        return (
            f"no module {module!r}{hint}; searched: the file's folder, the working directory and "
            "PYTHONPATH"
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except SyntaxError as error:
        return f"{spec.origin}:{error.lineno}: {error.msg}"
    names = set(_assigned_names(tree.body))
    first = attribute.partition(".")[0]
    if first in names or names & {"*", "__getattr__"}:
        return None
    public = sorted(found for found in names if not found.startswith("_"))
    listed = ", ".join(public[:_MAX_LISTED]) + (", ..." if len(public) > _MAX_LISTED else "")
    return (
        f"{module!r} has no {first!r}{did_you_mean(first, public)}; it has: {listed or 'nothing'}"
    )


def find_spec(name: str) -> ModuleSpec | None:
    """Finds a module without importing it or its packages."""
    locations: Sequence[str] | None = None
    spec = None
    steps = name.split(".")
    for end in range(1, len(steps) + 1):
        spec = _ask_finders(".".join(steps[:end]), locations)
        locations = spec.submodule_search_locations if spec is not None else None
        if spec is None or (locations is None and end < len(steps)):
            return None
    return spec


def _ask_finders(name: str, locations: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, locations)
        if spec is not None:
            return spec
    return None


def _modules_nearby() -> Iterator[str]:
    """Yields the modules of the two folders that are searched first."""
    for folder in sys.path[:2]:
        for path in Path(folder).glob("*"):
            if path.suffix == ".py" or (path / "__init__.py").is_file():
                yield path.stem


def _assigned_names(statements: Sequence[ast.AST]) -> Iterator[str]:
    """Yields the names that statements of a module assign; `*` for all of an unknown module."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
            continue
        targets = [
            *getattr(node, "targets", ()),
            *(only for only in (getattr(node, "target", None),) if only is not None),
            *(item.optional_vars for item in getattr(node, "items", ()) if item.optional_vars),
        ]
        for target in targets:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
        for block in _BLOCKS:
            yield from _assigned_names(getattr(node, block, ()))
