"""Names `module:attr` of a user's functions: their import, and a lookup that runs no code."""

from __future__ import annotations

import importlib
import symtable
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.model import did_you_mean

_MAX_LISTED = 12
"""Names of a module that a message lists."""


def load(name: str) -> Any:
    """Returns the object that `module:attr` (or `package.module:outer.inner`) names.

    The working directory is searched too, as `python -m` does. Raises `ConfigError` for a
    malformed name and for a missing module or attribute; an error inside the module is raised
    unchanged.
    """
    add_search_path(Path.cwd())
    module, _, attribute = name.partition(":")
    if problem := _missing_module(name):
        raise ConfigError(problem, name=name)
    target: Any = importlib.import_module(module)
    for step in attribute.split("."):
        if not hasattr(target, step):
            raise ConfigError(_missing_attribute(module, attribute, set(vars(target))), name=name)
        target = getattr(target, step)
    return target


def add_search_path(directory: Path) -> None:
    """Adds a directory to the front of `sys.path`, unless it is there already."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def explain_missing(name: str) -> str | None:
    """Returns why nothing has the name `module:attr`; None if something has, or may have it.

    A file that assigns its names in another way than by statements may have any.
    """
    if problem := _missing_module(name):
        return problem
    module, _, attribute = name.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    source = Path(spec.origin).read_text(encoding="utf-8")
    try:
        names = {
            symbol.get_name()
            for symbol in symtable.symtable(source, spec.origin, "exec").get_symbols()
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
        }
    except SyntaxError as error:
        return f"{spec.origin}:{error.lineno}: {error.msg}"
    first = attribute.partition(".")[0]
    if first in names or "__getattr__" in names or "import *" in source:
        return None
    return _missing_attribute(module, first, names)


def find_spec(name: str) -> ModuleSpec | None:
    """Finds a module without importing it or its packages."""
    locations: Sequence[str] | None = None
    spec = None
    steps = name.split(".")
    for end in range(1, len(steps) + 1):
        part = ".".join(steps[:end])
        specs = (finder.find_spec(part, locations) for finder in sys.meta_path)
        spec = next((found for found in specs if found is not None), None)
        locations = spec.submodule_search_locations if spec is not None else None
        if spec is None or (locations is None and end < len(steps)):
            return None
    return spec


def _missing_module(name: str) -> str | None:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        return f"{name!r} is not of the form module:attr"
    if module in sys.modules or find_spec(module) is not None:
        return None
    hint = did_you_mean(module, sorted(_modules_nearby()))
    return (
        f"no module {module!r}{hint}; searched: the file's folder, the working directory and "
        "PYTHONPATH"
    )


def _missing_attribute(module: str, attribute: str, names: set[str]) -> str:
    public = sorted(found for found in names if not found.startswith("_"))
    listed = ", ".join(public[:_MAX_LISTED]) + (", ..." if len(public) > _MAX_LISTED else "")
    hint = did_you_mean(attribute, public)
    return f"{module!r} has no {attribute!r}{hint}; it has: {listed or 'nothing'}"


def _modules_nearby() -> Iterator[str]:
    """Yields the modules of the two folders that are searched first."""
    for folder in sys.path[:2]:
        for path in Path(folder).glob("*"):
            if path.suffix == ".py" or (path / "__init__.py").is_file():
                yield path.stem
