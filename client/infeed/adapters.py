"""Adapters of other packages: their names in modules of `infeed`, and the extras that they need."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from infeed.shared.errors import MissingExtraError


def require(module: str, title: str) -> None:
    """Raises `MissingExtraError` if the framework of an adapter is not installed, without an import
    of it."""
    if find_spec(module) is None:
        raise MissingExtraError(f"infeed.{module} needs {title}: pip install 'infeed[{module}]'")


def added_names(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a module whose names other packages add by the
    entry points of the group with its name. They are imported on first use: this takes seconds."""

    def import_name(name: str) -> Any:
        for entry in entry_points(group=module, name=name):
            return entry.load()
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return import_name, lambda: sorted(entry_points(group=module).names)
