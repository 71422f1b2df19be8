"""Parts of several adapters: feeds that connect late, names of fields, extras."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from infeed.shared.errors import MissingExtraError


def require(module: str, title: str) -> None:
    """Raises `MissingExtraError` if the framework of an adapter is not installed, without an import
    of it."""
    if find_spec(module) is None:
        raise MissingExtraError(f"infeed.{module} needs {title}: pip install 'infeed[{module}]'")


def import_lazily(
    package: str, modules: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package: for names whose modules take seconds to import, and
    for those that other packages add by the entry points of a group with the package's name."""

    def import_name(name: str) -> Any:
        if name in modules:
            return getattr(importlib.import_module(modules[name]), name)
        for entry in entry_points(group=package, name=name):
            return entry.load()
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return import_name
