"""Rows of samples: a field with any number of values per sample, such as the labels of boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from infeed_mixtures.exact import Values, exact


@dataclass(frozen=True)
class Rows:
    """The number of rows in each sample, and the concatenated rows of all samples."""

    counts: Values
    values: Values

    @classmethod
    def of(cls, samples: Values) -> Self:
        """Takes an array of rows for each sample. Raises `ValueError` for rows that are neither
        numbers nor texts."""
        counts = np.array([len(rows) for rows in samples], np.int64)
        return cls(counts, exact(np.concatenate([*samples])))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, samples: Values) -> Rows:
        """Returns the rows of some samples, in ascending order."""
        is_kept = np.zeros(len(self), bool)
        is_kept[samples] = True
        return Rows(self.counts[samples], self.values[np.repeat(is_kept, self.counts)])

    def of_rows(self, name: str, counts: Values) -> Values:
        """Returns a value for each row. Raises `ValueError` for rows with several values, and for
        numbers of rows other than `counts`."""
        if self.values.ndim > 1:
            raise ValueError(
                f"has {name!r} in any, with {self.values[0].size} values in each row instead of one"
            )
        if not np.array_equal(self.counts, counts):
            raise ValueError(f"has {name!r} in any, with other rows in a sample than another field")
        return self.values


def has_rows(values: Values) -> bool:
    """Returns whether each sample has an array of rows."""
    return values.ndim > 1 or (
        values.dtype == object and values.size > 0 and isinstance(values.flat[0], np.ndarray)
    )
