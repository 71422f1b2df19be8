"""Import of a user's functions and pipelines by `module:attr` names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from infeed.shared.errors import ConfigError


def load(name: str) -> Any:
    """Returns the object that `module:attr` (or `package.module:outer.inner`) names.

    The working directory is searched too, as `python -m` does. Raises `ConfigError` for a
    malformed name and for a missing module or attribute; an error inside the module is raised
    unchanged.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"{name!r} is not of the form module:attr", name=name)
    target: Any = _import_module(module_name)
    for step in attribute.split("."):
        if not hasattr(target, step):
            public = sorted(word for word in vars(target) if not word.startswith("_"))
            raise ConfigError(
                f"{module_name!r} has no {attribute!r}; it has: {', '.join(public)}", name=name
            )
        target = getattr(target, step)
    return target


def add_search_path(directory: Path) -> None:
    """Adds a directory to the front of `sys.path`, unless it is there already."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _import_module(name: str) -> ModuleType:
    add_search_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only the user's own name is reported as not found; an import that fails inside the
        # module is the module's error and keeps its traceback.
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        raise ConfigError(
            f"no module {name!r} (searched the working directory and PYTHONPATH)", name=name
        ) from None
