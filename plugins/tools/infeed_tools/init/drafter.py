"""Drafters: what `infeed init` needs to recognize and draft the data of each source.

An entry point of the group `infeed.starters` has the source's key as its name, and loads its
`Drafter`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.config.user_errors import user_errors
from infeed_tools.init.draft import Draft
from infeed_tools.init.listing import Files

log = logging.getLogger(__name__)

_DOOR = Door("infeed.starters", "starter")


@dataclass(frozen=True)
class Drafter:
    """The data of one source."""

    draft: Callable[[Files], Iterable[Draft]]
    """Drafts the pipelines for a data set. Raises `SourceError`."""
    endings: Sequence[str] = ()
    """Endings of its files, in lower case."""
    begins: Callable[[bytes], bool] = lambda _: False
    """Tells from the first bytes whether this source reads a file without a known ending."""
    described_by: Mapping[str, Set[str]] = field(default_factory=dict)
    """The keys of files that describe their folder, by the file's name."""
    is_table: bool = False
    """Whether its files may be mere labels of other data, which is then served."""
    has_twins: bool = False
    """Whether files of other sources with the same names only describe its files."""
    is_local: bool = False
    """Whether the source reads only local files."""
    is_whole: bool = False
    """Whether each file is a data set that a server reads whole."""


def drafters() -> dict[str, Drafter]:
    """Returns the drafters by source. Warns of those that cannot be loaded."""
    found: dict[str, Drafter] = {}
    for kind in _DOOR.names():
        try:
            drafter = _DOOR.load(kind)
            if not isinstance(drafter, Drafter):
                raise ConfigError(f"{_DOOR.subject(kind)} should be a Drafter, not {drafter!r}")
        except ConfigError as error:
            log.warning("%s", error)
        else:
            found[kind] = drafter
    return found


def source_of(known: Mapping[str, Drafter], head: bytes) -> str:
    """Returns the source of a file without a known ending, given its first bytes; "" if none knows
    it. Only warns of a drafter that fails, so that the others still find their data."""
    for kind, drafter in known.items():
        try:
            if drafter.begins(head):
                return kind
        except Exception as error:  # noqa: BLE001 - code of any package
            log.warning("%s: begins: %s: %s", _DOOR.subject(kind), type(error).__name__, error)
    return ""


def draft_all(kind: str, drafter: Drafter, sets: Iterable[Files]) -> list[Draft]:
    """Drafts the pipelines for data sets. Raises infeed's errors unchanged, and others as a
    `UserCodeError` that names the drafter's package."""
    with user_errors(_DOOR.subject(kind), InfeedError, KeyboardInterrupt):
        return [draft for data in sets for draft in drafter.draft(data)]
