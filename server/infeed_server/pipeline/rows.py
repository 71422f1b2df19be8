"""Rows of columns: some samples of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infeed_server.sources.base import Columns
from infeed_server.sources.places import Indices

Mask = npt.NDArray[np.bool_]
"""Whether each row is selected."""


class Part(NamedTuple):
    """Samples of a batch, and their columns."""

    indices: Indices
    columns: Columns

    def select(self, some: Mask) -> Part:
        return Part(self.indices[some], select_rows(self.columns, some))


def select_rows(columns: Columns, some: Mask) -> Columns:
    """Returns some rows of columns; all of them without a copy."""
    return columns if some.all() else {name: values[some] for name, values in columns.items()}


def read_only(columns: Columns) -> Columns:
    """Returns views of columns that refuse a write."""
    views = {name: values.view() for name, values in columns.items()}
    for values in views.values():
        values.flags.writeable = False
    return views


def gather(parts: Sequence[Part], indices: Indices) -> Columns:
    """Returns the rows of samples, each from the part that has it; without a copy if one part has
    all, in order."""
    parts = [part for part in parts if len(part.indices)] or parts[:1]
    found = np.concatenate([part.indices for part in parts])
    if len(parts) == 1 and np.array_equal(found, indices):
        return parts[0].columns
    row_of = {index: row for row, index in enumerate(found.tolist())}
    rows = [row_of[index] for index in indices.tolist()]
    names = parts[0].columns
    return {name: np.concatenate([part.columns[name] for part in parts])[rows] for name in names}
