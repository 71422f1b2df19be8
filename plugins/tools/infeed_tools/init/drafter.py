"""Drafters: how `infeed init` knows the data of a source, found by the entry points
`infeed.starters`.

An entry point has the key of the source, and loads its `Drafter`.
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
    """Returns whether this source reads a file without a known ending, by its first bytes."""
    described_by: Mapping[str, Set[str]] = field(default_factory=dict)
    """Name of a file that describes its folder → keys that the file has."""
    is_table: bool = False
    """Whether its files may only be labels of other data, which is then served."""
    has_twins: bool = False
    """Whether files of other sources that are named like its files only describe these."""
    is_local: bool = False
    """Whether the source reads local files only."""
    is_whole: bool = False
    """Whether each file is a data set, which a server reads whole."""


def drafters() -> dict[str, Drafter]:
    """Returns the drafters by source. Warns of those whose package is at fault."""
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
    """Returns the source of a file without a known ending, by its first bytes; "" if none knows
    it. Warns of a drafter that fails: it keeps none of the others from their data."""
    for kind, drafter in known.items():
        try:
            if drafter.begins(head):
                return kind
        except Exception as error:  # noqa: BLE001 - code of any package
            log.warning("%s: begins: %s: %s", _DOOR.subject(kind), type(error).__name__, error)
    return ""


def draft_all(kind: str, drafter: Drafter, sets: Iterable[Files]) -> list[Draft]:
    """Drafts the pipelines for data sets. Raises `UserCodeError` that names the drafter's package
    for what its code raises, and errors of infeed as they are."""
    with user_errors(_DOOR.subject(kind), InfeedError, KeyboardInterrupt):
        return [draft for data in sets for draft in drafter.draft(data)]
