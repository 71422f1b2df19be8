"""Adapters from other packages: their names in `infeed`'s modules, and the extras they need."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, MissingExtraError


def require(module: str, title: str) -> None:
    """Raises `MissingExtraError` if an adapter's framework is not installed; does not import it."""
    if find_spec(module) is None:
        raise MissingExtraError(f"infeed.{module} needs {title}: pip install 'infeed[{module}]'")


def added_names(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a module whose names other packages add, through the
    entry point group named after it. Each name is imported on first use, which takes seconds. A
    name added by several packages is a `ConfigError`."""
    door = Door(module, f"name of {module}")

    @cache
    def import_name(name: str) -> Any:
        if name not in door.names():
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return door.load(name)
        except ConfigError as error:
            if isinstance(error.__cause__, ImportError):  # a framework that is not installed
                raise error.__cause__ from None
            raise

    return import_name, door.names
