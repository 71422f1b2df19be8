"""Doors: objects that installed packages offer through an entry point group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from infeed.shared.errors import ConfigError, MissingExtraError

_SIGNAL = 128
"""Offset of a signal's number in the exit status, also of a program that is still importing."""


class Door:
    """The objects of one group, by name, imported on demand."""

    def __init__(self, group: str, subject: str) -> None:
        """`subject` is what messages call such an object."""
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

    def refuse_others(self, known: Collection[str]) -> None:
        """Raises `ConfigError` if a package offers a name that nothing uses."""
        for name in self.names():
            if name not in known:
                raise ConfigError(
                    f"{self.subject(name)} has an unknown name; known: {', '.join(sorted(known))}; "
                    "repair or uninstall that package"
                )

    def load(self, name: str) -> Any:
        """Returns an object. Raises `ConfigError` if several packages offer the name or its package
        cannot be imported, and `MissingExtraError` if an extra that its entry point names is not
        installed."""
        offer = self._offers[name][0]
        if len(self._offers[name]) > 1:
            packages = " and ".join(map(_package, self._offers[name]))
            raise ConfigError(
                f"the {self._subject} {name!r} is offered by {packages}; uninstall all but one"
            )
        try:
            return offer.load()
        except (Exception, SystemExit) as error:
            if (
                isinstance(error, SystemExit)
                and isinstance(error.code, int)
                and error.code > _SIGNAL
            ):
                raise
            if isinstance(error, ModuleNotFoundError) and offer.extras:
                raise self.lacking(name, error.name) from error
            raise ConfigError(
                f"{self.subject(name)} cannot be imported: "
                f"{type(error).__name__}: {error}; repair or uninstall that package"
            ) from error

    def lacking(self, name: str, module: str | None) -> MissingExtraError:
        """Returns the error for an object whose required module is not installed."""
        offer = self._offers[name][0]
        remedy = f"; install it, or repair {_package(offer)}"
        if offer.extras and offer.dist:
            remedy = f": pip install '{offer.dist.name}[{','.join(offer.extras)}]'"
        problem = f"needs the package {module!r}, which is not installed"
        return MissingExtraError(f"the {self._subject} {name!r} {problem}{remedy}")

    def subject(self, name: str) -> str:
        """Returns an object's name for messages, with the package that offers it, if any."""
        packages = [f" of {_package(offer)}" for offer in self._offers.get(name, ())]
        return f"the {self._subject} {name!r}{''.join(packages)}"

    def place(self, name: str) -> str:
        """Returns the place of an object, for messages."""
        offer = self._offers[name][0]
        return f"{offer.value} of {_package(offer)}"


def _package(offer: EntryPoint) -> str:
    return f"{offer.dist.name} {offer.dist.version}" if offer.dist else offer.module
