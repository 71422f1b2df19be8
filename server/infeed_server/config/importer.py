"""Names `module:attr` of a user's functions, and their import.

A module is looked for where Python looks, then in the folder of the file that names it and in the
working directory. So no file there takes the place of another module, and modules of one name in
the folders of two files are two modules. What such a module imports is looked for in the same
places, also where its functions import it later.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.model import did_you_mean

_MAX_LISTED = 12
"""Names of a module that a message lists."""

_lock = threading.RLock()
"""Held while folders are searched for a module and the module is imported."""

_searched: list[str] = []
"""The folders that are at the end of `sys.path` for the name that was looked for last."""

_apart: dict[str, dict[str, ModuleType]] = {}
"""Folders that are not searched now, with the modules that were imported from each."""


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
    """Returns a name as a file in a folder has it; an object unchanged."""
    return CodeName(target, folder) if isinstance(target, str) else target


def load(name: str) -> Any:
    """Returns the object that `module:attr` (or `package.module:outer.inner`) names. Raises
    `ConfigError` for a malformed name, a missing module or attribute, and a module that Python has
    elsewhere too; an error inside the module is raised unchanged."""
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
    """Returns how its module is loaded; None if it is loaded. Raises `ConfigError`."""
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
    """Makes folders the end of `sys.path`, and puts apart the modules of those before."""
    with _lock:
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)
        for folder in _searched:
            if folder in sys.path:
                sys.path.remove(folder)
            if folder not in folders:
                _apart[folder] = {name: sys.modules.pop(name) for name in _modules_of(folder)}
        _searched[:] = [folder for folder in folders if folder not in sys.path]
        sys.path += _searched
        for folder in _searched:
            sys.modules.update(_apart.pop(folder, {}))


def _modules_of(folder: str) -> list[str]:
    """Returns the names of the imported modules that a folder has, also in packages."""
    roots = {
        name
        for name, module in sys.modules.copy().items()
        if "." not in name and name != "__main__" and _folder_of(module) == folder
    }
    return [name for name in sys.modules if name.partition(".")[0] in roots]


def _folder_of(module: ModuleType) -> str:
    """Returns the folder that a module of the first level was found in; "" if in none."""
    values = getattr(module, "__dict__", {})  # an attribute would load a deferred module
    file = Path(values.get("__file__") or next(iter(values.get("__path__", ())), ""))
    return str(file.parents[file.name == "__init__.py"]) if file.name else ""


def _refuse_another(module: str, folders: Sequence[str]) -> None:
    """Raises `ConfigError` if a module of the first level is in one of the folders, but the one
    that is imported is another."""
    own = _origin(module, folders)
    loaded = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    spec = find_spec(module)
    found = loaded or (spec and spec.origin) or "Python itself"
    if own and os.path.realpath(own) != os.path.realpath(found):
        raise ConfigError(
            f"two modules have the name {module!r}: {own} and the one of {found}; give yours "
            "another name",
            name=module,
        )


def _origin(module: str, folders: Sequence[str]) -> str | None:
    """Returns the file of a module of the first level in the first folder that has it."""
    specs = (PathFinder.find_spec(module, [folder]) for folder in folders)
    return next((spec.origin for spec in specs if spec and spec.origin), None)


class _Finder:
    """Finds modules as Python does; one of a searched folder imports from there, too."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _: Any = None) -> ModuleSpec | None:
        """Finds a module in the entries of a path."""
        spec = PathFinder.find_spec(name, path)
        if spec and spec.origin and type(spec.loader) is SourceFileLoader:
            place = Path(spec.origin.removesuffix(".py").removesuffix("/__init__"))
            if place in [Path(folder, *name.split(".")) for folder in _searched]:
                spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module that imports, also in its functions, from the folders searched now."""

    def exec_module(self, module: ModuleType) -> None:
        # A function has the builtins of its module, and an import statement calls `__import__`.
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _Import()}
        super().exec_module(module)


class _Import:
    """Does what `__import__` does, in the folders that were searched when it was made."""

    def __init__(self) -> None:
        self._folders = [*_searched]
        self._imported: dict[tuple[Any, ...], ModuleType] = {}

    def __call__(
        self,
        name: str,
        globals: Any = None,  # noqa: A002
        locals: Any = None,  # noqa: A002
        fromlist: Sequence[str] | None = None,
        level: int = 0,
    ) -> ModuleType:
        key = (name, *(fromlist or ()), level)
        if key in self._imported:  # a search takes milliseconds
            return self._imported[key]
        statement = (name, globals, locals, fromlist or (), level)
        first = name.partition(".")[0]
        if not level and not any(PathFinder.find_spec(first, [place]) for place in self._folders):
            return builtins.__import__(*statement)
        with _lock:
            before = [*_searched]
            _search(self._folders)
            try:
                self._imported[key] = builtins.__import__(*statement)
            finally:
                _search(before)
        return self._imported[key]


def missing_name(name: str, step: str, names: Iterable[str]) -> ConfigError:
    """Returns the error for `module:attr` where none of the names there is its part `step`."""
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
        except KeyError:  # of Python: a namespace package in one that is not imported
            folders = [Path(place) / steps[end - 1] for place in locations or ()]
            spec, locations = None, [str(folder) for folder in folders if folder.is_dir()]
            continue
        locations = spec.submodule_search_locations if spec is not None else None
        if spec is None or (locations is None and end < len(steps)):
            return None
    return spec
