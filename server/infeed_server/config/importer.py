"""Import of the user's functions by name, `module:attr`.

A module is searched where Python searches, then in the folder of the file that names it and in the
working directory. So a file there never replaces another module, and two folders may have modules
of the same name. What a function imports when called is searched in the folder searched last: in a
program that loads files from two folders, that may be the other one.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.model import did_you_mean

_MAX_LISTED = 12
"""Maximum number of a module's names listed in a message."""

_lock = threading.RLock()
"""Held while a module is searched for and imported."""

_searched: list[str] = []
"""The folders at the end of `sys.path`, added for the name searched last."""

_apart: dict[str, dict[str, ModuleType]] = {}
"""The modules imported from each folder that is not searched at present."""


class CodeName(str):
    """A name `module:attr`, with the folder of the file that has it."""

    folder: Path

    def __new__(cls, name: str, folder: Path) -> CodeName:
        self = super().__new__(cls, name)
        self.folder = folder
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return CodeName, (str(self), self.folder)


def named_in(target: Any, folder: Path) -> Any:
    """Returns a name with the folder of its file; an object unchanged."""
    return CodeName(target, folder) if isinstance(target, str) else target


def load(name: str) -> Any:
    """Returns the object named `module:attr` (or `package.module:outer.inner`). Raises
    `ConfigError` for a malformed name, a missing module or attribute, or a module that Python also
    finds elsewhere; passes on an error inside the module."""
    module, _, attribute = name.partition(":")
    with _lock:
        find_module(name)
        target: Any = importlib.import_module(module)
    for step in attribute.split("."):
        if not hasattr(target, step):
            raise missing_name(name, step, vars(target))
        target = getattr(target, step)
    return target


def find_module(name: str) -> ModuleSpec | None:
    """Returns the spec of a name's module; None if it is loaded. Raises `ConfigError`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{name!r} is not of the form module:attr", name=name)
    own = [str(name.folder)] if isinstance(name, CodeName) else []
    folders = [*dict.fromkeys([*own, str(Path.cwd())])]
    _search(folders)
    spec = find_spec(module)
    if spec is None and module not in sys.modules:
        nearby = {path.stem for folder in folders for path in Path(folder).glob("*.py")}
        hint = did_you_mean(module, sorted(nearby))
        raise ConfigError(
            f"no module {module!r}{hint}; searched: PYTHONPATH, the file's folder and the working "
            "directory",
            name=name,
        )
    _refuse_another(module.partition(".")[0], folders)
    return spec


def _search(folders: list[str]) -> None:
    """Puts folders at the end of `sys.path`, and sets aside the modules of the previous ones."""
    with _lock:
        wanted = [folder for folder in folders if folder in _searched or folder not in sys.path]
        if wanted == _searched and {*wanted} <= {*sys.path}:
            return
        for folder in _searched:
            if folder in sys.path:
                sys.path.remove(folder)
            if folder not in folders:
                _apart[folder] = {name: sys.modules.pop(name) for name in _modules_of(folder)}
        _searched[:] = wanted
        sys.path += _searched
        for folder in _searched:
            sys.modules.update(_apart.pop(folder, {}))


def _modules_of(folder: str) -> list[str]:
    """Returns the names of modules imported from a folder, including those in packages."""
    roots = {
        name
        for name, module in sys.modules.copy().items()
        if "." not in name and name != "__main__" and _folder_of(module) == folder
    }
    return [name for name in sys.modules if name.partition(".")[0] in roots]


def _folder_of(module: ModuleType) -> str:
    """Returns the folder of a top-level module; "" if it has none."""
    values = getattr(module, "__dict__", {})  # an attribute would load a deferred module
    file = Path(values.get("__file__") or next(iter(values.get("__path__", ())), ""))
    return str(file.parents[file.name == "__init__.py"]) if file.name else ""


def _refuse_another(module: str, folders: Sequence[str]) -> None:
    """Raises `ConfigError` if one of the folders has a top-level module of this name, but another
    one is imported."""
    own = _origin(module, folders)
    loaded = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    spec = find_spec(module)
    found = loaded or (spec and spec.origin) or "Python itself"
    if own and os.path.realpath(own) != os.path.realpath(found):
        raise ConfigError(
            f"two modules are named {module!r}: {own} and {found}; rename yours",
            name=module,
        )


def _origin(module: str, folders: Sequence[str]) -> str | None:
    """Returns a top-level module's file in the first folder that has it."""
    specs = (PathFinder.find_spec(module, [folder]) for folder in folders)
    return next((spec.origin for spec in specs if spec and spec.origin), None)


def missing_name(name: str, step: str, names: Iterable[str]) -> ConfigError:
    """Returns the error for a `module:attr` whose part `step` is none of the names there."""
    module, _, attribute = name.partition(":")
    public = sorted(found for found in names if not found.startswith("_"))
    listed = ", ".join(public[:_MAX_LISTED]) + (", ..." if public[_MAX_LISTED:] else "")
    hint = did_you_mean(step, public)
    return ConfigError(
        f"{module!r} has no {attribute!r}{hint}; it has: {listed or 'nothing'}", name=name
    )


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
        except KeyError:  # Python's error for a namespace package in a package not yet imported
            folders = [Path(place) / steps[end - 1] for place in locations or ()]
            spec, locations = None, [str(folder) for folder in folders if folder.is_dir()]
            continue
        locations = spec.submodule_search_locations if spec is not None else None
        if spec is None or (locations is None and end < len(steps)):
            return None
    return spec
