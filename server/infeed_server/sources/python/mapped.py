"""Sources behind the user's functions in Python: samples as the functions return them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import SampleError
from infeed_server.sources.base import Columns, Indices, Provenance, Sample, Source
from infeed_server.sources.python.backends import FunctionBackend
from infeed_server.sources.python.dataset import example_indices
from infeed_server.sources.python.functions import Chain, FunctionOptions, Parts
from infeed_server.sources.python.reader import PythonReader, column_specs, parse_columns
from infeed_server.sources.python.work_meter import PythonWork

Keys = npt.NDArray[np.int64]
"""Keys of samples, int64[n, 2]."""


class MappedSource(ABC):
    """A source, and a chain of functions that are applied where its samples are read."""

    def __init__(self, source: Source, chain: Chain) -> None:
        self.source = source
        self._chain = chain
        self.random = any(function.keyed for function in chain.functions)

    @property
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        return column_specs(self._chain.fields)

    @property
    def parsed(self) -> bool:
        return not any(field.varies for field in self._chain.fields)

    @property
    def identity(self) -> str:
        return self.source.identity

    def __len__(self) -> int:
        return len(self.source)

    def read(self, indices: Indices) -> Columns:
        """Reads samples of functions that need no key."""
        assert not self.random
        return self.read_keyed(indices, np.zeros((len(indices), 2), np.int64))

    @abstractmethod
    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        """Reads the columns of these samples under these keys."""

    def parse(self, columns: Sample) -> Sample:
        return parse_columns(columns, self._chain.fields)

    def provenance(self, index: int) -> Provenance:
        return self.source.provenance(index)

    def close(self) -> None:
        self.source.close()


def python_work(source: Source) -> PythonWork:
    """Returns the work of the user's Python code where a source is read."""
    if isinstance(source, PythonReader | MappedReader | MappedRecords):
        return source.backend.meter.work()
    return PythonWork()


def read_samples(source: Source, indices: Indices, keys: Keys) -> Columns:
    """Reads the columns of these samples, under these keys if they depend on them."""
    if isinstance(source, MappedSource):
        return source.read_keyed(indices, keys)
    return source.read(indices)


class MappedReader(MappedSource):
    """A user's data set: the functions run where it is read."""

    def __init__(self, reader: PythonReader, functions: tuple[FunctionOptions, ...]) -> None:
        """Raises the errors of the functions, of those samples that show the fields."""
        fields = functions[-1].fields or reader.backend.result_fields(functions)
        super().__init__(reader, Chain(functions, fields))
        self.backend = reader.backend

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        return self.backend.read(indices.tolist(), (self._chain, keys))


class MappedRecords(MappedSource):
    """Any other source: what it reads is sent to the processes of the functions."""

    def __init__(
        self, source: Source, label: str, functions: tuple[FunctionOptions, ...], processes: int
    ) -> None:
        """`label` is the source's name in messages.

        Raises the errors of the functions, of those samples that show the fields.
        """
        self.source = source
        self.backend = FunctionBackend(label, processes)
        try:
            fields = functions[-1].fields or self._result_fields(functions)
        except BaseException:  # also a signal
            self.backend.close()
            raise
        super().__init__(source, Chain(functions, fields))

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        samples = self._read(indices)
        try:
            return self.backend.apply(self._chain, indices.tolist(), samples, keys)
        except SampleError as error:
            raise self._sample_error(int(error.metadata["sample_id"]), error.message) from error

    def close(self) -> None:
        self.backend.close()
        super().close()

    def _result_fields(self, functions: tuple[FunctionOptions, ...]) -> Any:
        samples: list[tuple[int, Parts]] = []
        errors: list[SampleError] = []
        for index in example_indices(len(self.source)):
            try:
                samples.append((index, self._read(np.array([index]))[0]))
            except SampleError as error:
                errors.append(error)
        if not samples:
            raise errors[0]
        return self.backend.result_fields(functions, samples)

    def _read(self, indices: Indices) -> list[Parts]:
        columns = self.source.read(indices)
        rows: list[Parts] = [
            {name: column[row] for name, column in columns.items()} for row in range(len(indices))
        ]
        if self.source.parsed:
            return rows
        return [self._parse_row(int(index), row) for index, row in zip(indices, rows, strict=True)]

    def _parse_row(self, index: int, row: Parts) -> Parts:
        try:
            sample = self._parse({name: tf.constant(value) for name, value in row.items()})
        except tf.errors.InvalidArgumentError as error:
            reason = error.message.splitlines()[0]
            raise self._sample_error(index, f"sample {index} cannot be parsed: {reason}") from error
        # A copy, since a function may change it.
        return {name: np.array(value.numpy())[()] for name, value in sample.items()}

    def _sample_error(self, index: int, message: str) -> SampleError:
        origin = self.source.provenance(index)
        metadata = {"sample_id": index, "file": origin.file, "offset": origin.offset}
        return SampleError(message, **metadata)

    @cached_property
    def _parse(self) -> Callable[[Sample], Sample]:
        traced = tf.function(self.source.parse, autograph=False)
        function: Callable[[Sample], Sample]
        function = traced.get_concrete_function(dict(self.source.columns))
        return function
