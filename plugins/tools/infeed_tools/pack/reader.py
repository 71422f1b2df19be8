"""The samples of a source, read and parsed, with the problems of bad ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, SampleError
from infeed_server.pipeline.load import load, located
from infeed_server.pipeline.sample_graph import columns_function, sample_function
from infeed_server.sources.base import ProgressCallback, Source
from infeed_server.sources.registry import open_sources
from infeed_server.storage.faults import is_storage_fault
from infeed_server.transforms.base import Transform
from infeed_tools.pack.fields import Values
from infeed_tools.pack.options import Location, OnBad, PackOptions

_READ_AT_ONCE = 32


class SampleReader:
    """Reads the samples of a source and applies transforms."""

    def __init__(self, source: Source, transforms: Sequence[Transform] = ()) -> None:
        steps = sample_function(source, [*enumerate(transforms)])
        function = columns_function(source.columns, steps)
        self.source = source
        self._function = None if source.parsed and not transforms else function
        self.specs = {
            name: tf.TensorSpec(spec.shape[1:], spec.dtype)
            for name, spec in function.structured_outputs.items()  # type: ignore[attr-defined]
        }

    def samples(self, indices: Iterable[int]) -> Iterator[tuple[int, Values | str]]:
        """Yields ids with samples, or with the problem of a bad one. Raises `SourceError`."""
        left = iter(indices)
        while chunk := list(islice(left, _READ_AT_ONCE)):
            yield from self._read(chunk)

    def _read(self, indices: Sequence[int]) -> Iterator[tuple[int, Values | str]]:
        try:
            columns = self.source.read_checked(np.array(indices, np.int64))
            if self._function is not None:
                fields = self._function(columns, np.zeros((len(indices), 2), np.int64))
                columns = {name: np.asarray(tensor) for name, tensor in fields.items()}
        except Exception as error:  # code of other packages may raise anything
            of_sample = isinstance(error, SampleError | tf.errors.InvalidArgumentError)
            of_other = isinstance(error, InfeedError | tf.errors.OpError) or is_storage_fault(error)
            if of_other and not of_sample:
                raise
            if len(indices) == 1:
                yield indices[0], str(error).partition("\n")[0]
                return
            for index in indices:
                yield from self._read([index])
            return
        for slot, index in enumerate(indices):
            yield index, {name: _value(rows[slot]) for name, rows in columns.items()}


def open_reader(
    location: Location, options: PackOptions, progress: ProgressCallback | None = None
) -> SampleReader:
    """Opens a pack's source. Raises `SourceError`, and `ConfigError` if it has no index."""
    pipelines = load(location.file)
    with located(pipelines, location.pipeline):
        keep_damaged = options.on_error is not OnBad.RAISE
        pipeline = pipelines[location.pipeline]
        sources = (pipeline.source, *pipeline.add)
        return SampleReader(open_sources(sources, progress, keep_damaged=keep_damaged))


def _value(row: Any) -> Any:
    return row if isinstance(row, bytes) else np.asarray(row)
