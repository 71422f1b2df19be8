"""Parts of several adapters: feeds that connect late, names of fields, extras."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from infeed.shared.errors import MissingExtraError


def require(module: str, title: str) -> None:
    """Raises `MissingExtraError` if the framework of an adapter is not installed, without an import
    of it."""
    if find_spec(module) is None:
        raise MissingExtraError(f"infeed.{module} needs {title}: pip install 'infeed[{module}]'")


def import_lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package, for names whose modules take seconds to import."""

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return import_name
