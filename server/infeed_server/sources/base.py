"""What a source is: samples that are read by index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Indices = npt.NDArray[np.int64]
"""Indices of samples in a source, one per slot."""

Columns = dict[str, npt.NDArray[Any]]
"""What a source reads for some samples: name → array, one row per sample."""

Sample = dict[str, tf.Tensor]
"""One sample inside a graph: field name → tensor, without a slots dimension."""


@dataclass(frozen=True)
class Provenance:
    """Where a sample lies: its file and, where the file holds many, the offset in bytes."""

    file: str
    offset: int | None = None

    def __str__(self) -> str:
        return self.file if self.offset is None else f"{self.file} at byte {self.offset}"


@dataclass(frozen=True)
class InGraph:
    """How a graph reads the samples of a source by itself, where no Python of ours runs.

    `size_bytes` is what it holds as constants, `paths` names the files that it reads. `reader`
    makes the constants and gives a function from an index, int64 scalar, to the sample's columns;
    inside the graph that fails for the samples that `Source.read` cannot read.
    """

    size_bytes: int
    paths: tuple[str, ...]
    reader: Callable[[], Callable[[tf.Tensor], Sample]]


class Source(Protocol):
    """Samples with random access. Thread-safe: `read` is called from several threads."""

    @property
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        """What `read` gives, per sample (no slots dimension)."""

    @property
    def identity(self) -> str:
        """A hash that differs when the samples do, and does not depend on where they lie."""

    @property
    def parsed(self) -> bool:
        """Whether the columns are the fields already, so that `parse` has nothing to do."""

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> Columns:
        """The columns of these samples, in this order.

        Raises `SampleError` with `sample_id` in its metadata for the first that cannot be read.
        """

    def parse(self, columns: Sample) -> Sample:
        """The fields of one sample from its columns; runs inside the pipeline's graph."""

    def provenance(self, index: int) -> Provenance:
        """Where a sample lies."""


class StoredSource(Source, Protocol):
    """A source that lies in files or arrays, which a graph can read as well."""

    def in_graph(self) -> InGraph:
        """How a graph reads it. Cheap: what may be large is made by `reader` alone."""
