"""Doors: objects that installed packages offer by the entry points of a group."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from infeed.shared.errors import ConfigError, MissingExtraError


class Door:
    """The objects of one group, by name. They are imported when they are asked for."""

    def __init__(self, group: str, subject: str) -> None:
        """`subject` is what an object is, in messages."""
        self._group, self._subject = group, subject

    @cached_property
    def _offers(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = defaultdict(list)
        for entry in entry_points(group=self._group):
            found[entry.name].append(entry)
        return dict(sorted(found.items()))

    def names(self) -> list[str]:
        """Returns the names, sorted."""
        return [*self._offers]

    def load(self, name: str) -> Any:
        """Returns an object. Raises `ConfigError` where several packages offer the name, or its
        package cannot be imported, and `MissingExtraError` where an extra that its entry point
        names is not installed."""
        offer = self._offers[name][0]
        if len(self._offers[name]) > 1:
            packages = " and ".join(map(_package, self._offers[name]))
            raise ConfigError(
                f"the {self._subject} {name!r} is offered by {packages}; uninstall all but one"
            )
        try:
            return offer.load()
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and offer.extras and offer.dist:
                raise MissingExtraError(
                    f"the {self._subject} {name!r} needs the package {error.name!r}, which is not "
                    f"installed: pip install '{offer.dist.name}[{','.join(offer.extras)}]'"
                ) from error
            raise ConfigError(
                f"the {self._subject} {name!r} of {_package(offer)} cannot be imported: "
                f"{type(error).__name__}: {error}; repair or uninstall that package"
            ) from error

    def place(self, name: str) -> str:
        """Returns where an object is, in words."""
        offer = self._offers[name][0]
        return f"{offer.value} of {_package(offer)}"


def _package(offer: EntryPoint) -> str:
    return f"{offer.dist.name} {offer.dist.version}" if offer.dist else offer.module
