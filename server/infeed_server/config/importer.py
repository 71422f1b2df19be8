"""Names `module:attr` of a user's functions, and their import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.model import did_you_mean

_MAX_LISTED = 12
"""Names of a module that a message lists."""


def load(name: str) -> Any:
    """Returns the object that `module:attr` (or `package.module:outer.inner`) names. The working
    directory is searched too, as `python -m` does. Raises `ConfigError` for a malformed name and
    for a missing module or attribute; an error inside the module is raised unchanged."""
    add_search_path(Path.cwd())
    find_module(name)
    module, _, attribute = name.partition(":")
    target: Any = importlib.import_module(module)
    for step in attribute.split("."):
        if not hasattr(target, step):
            raise missing_name(name, step, vars(target))
        target = getattr(target, step)
    return target


def find_module(name: str) -> ModuleSpec | None:
    """Returns how its module is loaded; None if it is loaded. Raises `ConfigError`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{name!r} is not of the form module:attr", name=name)
    spec = find_spec(module)
    if spec is None and module not in sys.modules:
        nearby = {path.stem for folder in sys.path[:2] for path in Path(folder).glob("*.py")}
        hint = did_you_mean(module, sorted(nearby))
        raise ConfigError(
            f"no module {module!r}{hint}; searched: the file's folder, the working directory and "
            "PYTHONPATH",
            name=name,
        )
    return spec


def missing_name(name: str, step: str, names: Iterable[str]) -> ConfigError:
    """Returns the error for `module:attr` where none of the names there is its part `step`."""
    module, _, attribute = name.partition(":")
    public = sorted(found for found in names if not found.startswith("_"))
    listed = ", ".join(public[:_MAX_LISTED]) + (", ..." if public[_MAX_LISTED:] else "")
    hint = did_you_mean(step, public)
    return ConfigError(
        f"{module!r} has no {attribute!r}{hint}; it has: {listed or 'nothing'}", name=name
    )


def add_search_path(directory: Path) -> None:
    """Adds a directory to the front of `sys.path`, unless it is there already."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def find_spec(name: str) -> ModuleSpec | None:
    """Finds a module without importing it or its packages."""
    locations: Sequence[str] | None = None
    spec = None
    steps = name.split(".")
    for end in range(1, len(steps) + 1):
        part = ".".join(steps[:end])
        specs = (finder.find_spec(part, locations) for finder in sys.meta_path)
        try:
            spec = next((found for found in specs if found is not None), None)
        except KeyError:  # of Python: a namespace package in one that is not imported
            folders = [Path(place) / steps[end - 1] for place in locations or ()]
            spec, locations = None, [str(folder) for folder in folders if folder.is_dir()]
            continue
        locations = spec.submodule_search_locations if spec is not None else None
        if spec is None or (locations is None and end < len(steps)):
            return None
    return spec
