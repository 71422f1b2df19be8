"""Drafters: how `infeed init` knows the data of a source, found by the entry points
`infeed.starters`.

An entry point has the key of the source, and loads its `Drafter`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError
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
    """Returns whether a file without a known ending is of this source, by its first bytes."""
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
    """Returns the drafters by source. Warns of those that cannot be imported."""
    found: dict[str, Drafter] = {}
    for kind in _DOOR.names():
        try:
            found[kind] = _DOOR.load(kind)
        except ConfigError as error:
            log.warning("%s", error)
    return found
