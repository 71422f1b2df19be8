"""Samples of two sources: whether they are the same, by id or by their place in a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from infeed_runs.change.changes import common_parts
from infeed_runs.change.definitions import Opened
from infeed_server.order.permutation import Positions
from infeed_server.sources.places import Provenance

_FEW = 10_000
"""Samples whose names are compared in any case where the sources differ."""


def sample_codes(one: Opened, other: Opened, *, names: bool) -> tuple[Any, str]:
    """Returns functions from the ids of each side to numbers that are equal for equal samples, and
    what is compared. `names`: samples of different sources are compared by file and offset, however
    many there are."""

    def same(index: Positions) -> Positions:
        return index

    common = common_parts(one, other)
    if common == len(one.parts) == len(other.parts):
        return (same, same), "samples by id, of the same source"
    known = sum(map(len, one.parts[:common]))
    if common:

        def apart(index: Positions) -> Positions:
            return np.where(index < known, index, -1 - index)

        return (same, apart), f"samples by id: 0 to {known - 1} are the same, later ones are not"
    if not (names or max(len(one.source), len(other.source)) <= _FEW):
        text = "samples by id alone, of different sources; give names to compare their files"
        return (same, same), text
    numbers: dict[tuple[Provenance, int], int] = {}
    places = [
        [*map(opened.source.provenance, range(len(opened.source)))] for opened in (one, other)
    ]
    text = "samples by file and their place in it"
    if {place.file for place in places[0]}.isdisjoint(place.file for place in places[1]):
        places = [*map(_below, places)]
        text = "samples by file below the folder of all, and their place in it"
    tables = [_numbered(every, numbers) for every in places]
    return tuple(table.__getitem__ for table in tables), text


def _below(places: Sequence[Provenance]) -> list[Provenance]:
    """Returns places with their files' paths below the folder that all are in: a copy of the data
    has the same."""
    start = os.path.commonpath([place.file.rpartition("/")[0] for place in places])
    return [replace(place, file=place.file[len(start) :]) for place in places]


def _numbered(
    places: Sequence[Provenance], numbers: dict[tuple[Provenance, int], int]
) -> Positions:
    """Returns a number of each sample, equal for samples at equal places of all sources."""
    found = []
    seen: Counter[Provenance] = Counter()  # of many samples, the place may be the file's alone
    for place in places:
        found.append(numbers.setdefault((place, seen[place]), len(numbers)))
        seen[place] += 1
    return np.array(found, np.int64)
