"""Parts with different columns or transforms, as sources with the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices

PART = "part"
"""The column with the number of a sample's part."""


class UnitedPart(Source):
    """A part with the columns of all parts: its own, the number of the part, and the others, which
    are empty. A step of the graph makes the fields."""

    def __init__(self, source: Source, number: int, names: Mapping[str, str], columns: Any) -> None:
        """Takes over the source. `names` maps its columns to their names among all `columns`."""
        self.source, self._number, self._names = source, number, names
        self.shown, self.exif = source.shown, source.exif
        super().__init__(
            source.places, columns, source.identity, classes=source.classes, advice=source.advice
        )

    def read(self, indices: Indices) -> Columns:
        count, found = len(indices), self.source.read_checked(indices)
        read = {self._names[name]: rows for name, rows in found.items()}
        read[PART] = np.full(count, self._number, np.int64)
        return {name: read.get(name, _empty(spec, count)) for name, spec in self.columns.items()}

    def fields(self, columns: Sample) -> Sample:
        """Returns the fields of a sample of this part."""
        return self.source.parse({own: columns[name] for own, name in self._names.items()})

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return self.source.known_fields()

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        return self.source.whole_field(name)

    def close(self) -> None:
        self.source.close()


def unite(sources: Sequence[Source]) -> list[UnitedPart]:
    """Returns the sources with the columns of all; equal columns become one."""
    columns: dict[str, tf.TensorSpec] = {PART: tf.TensorSpec((), tf.int64)}
    names: list[dict[str, str]] = []
    for number, source in enumerate(sources):
        names.append({})
        for name, spec in source.columns.items():
            shared = name if columns.setdefault(name, spec) == spec else f"{name}@{number}"
            columns[shared], names[-1][name] = spec, shared
    made = zip(sources, names, strict=True)
    return [UnitedPart(source, n, own, columns) for n, (source, own) in enumerate(made)]


def _empty(spec: tf.TensorSpec, count: int) -> npt.NDArray[Any]:
    fill: Any = b"" if spec.dtype == tf.string else 0
    return np.full((count, *spec.shape), fill, spec.dtype.as_numpy_dtype)
