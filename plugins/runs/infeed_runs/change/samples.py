"""Equality of samples of two sources, by id or by place in a file."""

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
"""Sources of at most this number of samples are always compared by name if they differ."""


def sample_codes(one: Opened, other: Opened, *, names: bool) -> tuple[Any, str]:
    """Returns a function for each side that maps ids to numbers, equal for equal samples, and a
    text that tells what is compared. With `names`, samples of different sources are compared by
    file and offset however many there are."""

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
        text = "samples by id only, as the sources differ; give names to compare their files"
        return (same, same), text
    numbers: dict[tuple[Provenance, int], int] = {}
    places = [
        [*map(opened.source.provenance, range(len(opened.source)))] for opened in (one, other)
    ]
    text = "samples by file and their place in it"
    if {place.file for place in places[0]}.isdisjoint(place.file for place in places[1]):
        places = [*map(_below, places)]
        text = "samples by file below the common folder, and their place in it"
    tables = [_numbered(every, numbers) for every in places]
    return tuple(table.__getitem__ for table in tables), text


def _below(places: Sequence[Provenance]) -> list[Provenance]:
    """Returns places whose paths begin below the common folder, so those of a copy of the data are
    equal."""
    start = os.path.commonpath([place.file.rpartition("/")[0] for place in places])
    return [replace(place, file=place.file[len(start) :]) for place in places]


def _numbered(
    places: Sequence[Provenance], numbers: dict[tuple[Provenance, int], int]
) -> Positions:
    """Returns a number for each sample, equal for samples at equal places in both sources."""
    found = []
    seen: Counter[Provenance] = Counter()  # several samples of a file can have the same place
    for place in places:
        found.append(numbers.setdefault((place, seen[place]), len(numbers)))
        seen[place] += 1
    return np.array(found, np.int64)
