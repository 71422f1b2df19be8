"""Sources behind the user's functions in Python: samples as the functions return them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import SampleError
from infeed_server.sources.base import Columns, Indices, Sample, Source, WrappedSource
from infeed_server.sources.python.backend import Backend
from infeed_server.sources.python.elements import read_examples
from infeed_server.sources.python.functions import Chain, FunctionOptions, Parts
from infeed_server.sources.python.reader import PythonReader, column_specs, parse_columns
from infeed_server.sources.python.values import Field
from infeed_server.sources.python.work_meter import PythonWork
from infeed_server.sources.python.worker import Worker

Keys = npt.NDArray[np.int64]
"""Keys of samples, int64[n, 2]."""


class MappedSource(WrappedSource):
    """A source, and a chain of functions that are applied where its samples are read."""

    def __init__(
        self, source: Source, backend: Backend, functions: tuple[FunctionOptions, ...]
    ) -> None:
        """Raises the errors of the functions, of the samples that show the fields."""
        super().__init__(source)
        self.backend = backend
        self.random = any(function.keyed for function in functions)
        fields = functions[-1].fields or self._infer(functions)
        self._chain = Chain(functions, fields)
        self.columns = column_specs(fields)
        self.parsed = not any(field.varies for field in fields)

    def read(self, indices: Indices) -> Columns:
        """Reads samples of functions that need no key."""
        assert not self.random
        return self.read_keyed(indices, np.zeros((len(indices), 2), np.int64))

    @abstractmethod
    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        """Reads the columns of these samples under these keys."""

    def parse(self, columns: Sample) -> Sample:
        return parse_columns(columns, self._chain.fields)

    def _infer(self, functions: tuple[FunctionOptions, ...]) -> tuple[Field, ...]:
        """Returns the fields of the functions' results, of some samples."""
        examples = read_examples(
            len(self.source), lambda index: self._samples(np.array([index]))[0]
        )
        indices = [example.number for example in examples]
        fields: tuple[Field, ...] = self.backend.call(
            Worker.infer, functions, examples, indices=indices
        )
        return fields

    def _samples(self, indices: Indices) -> list[Parts]:
        """Reads samples of the source as a function gets them."""
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
        values = {name: value.numpy() for name, value in sample.items()}
        # Copies, since a function may change them. NumPy would cut the zeros at the end of bytes.
        return {
            name: value if isinstance(value, bytes) else np.array(value)[()]
            for name, value in values.items()
        }

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


def python_work(source: Source) -> PythonWork:
    """Returns the work of the user's Python code where a source is read."""
    if isinstance(source, PythonReader | MappedSource):
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
        self._expected = reader.description
        super().__init__(reader, reader.backend, functions)

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        numbers, chain = indices.tolist(), self._chain
        return self.backend.read(
            Worker.read,
            chain.fields,
            numbers,
            lambda part: (self._expected, numbers[part], (chain, keys[part])),
        )


class MappedRecords(MappedSource):
    """Any other source: what it reads is sent to the processes of the functions."""

    def __init__(
        self, source: Source, label: str, functions: tuple[FunctionOptions, ...], processes: int
    ) -> None:
        """`label` is the source's name in messages."""
        backend = Backend(label, processes)
        try:
            super().__init__(source, backend, functions)
        except BaseException:  # also a signal
            backend.close()
            raise

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        numbers, samples, label = indices.tolist(), self._samples(indices), self.backend.label
        try:
            return self.backend.read(
                Worker.apply,
                self._chain.fields,
                numbers,
                lambda part: (self._chain, label, numbers[part], samples[part], keys[part]),
            )
        except SampleError as error:
            raise self._sample_error(int(error.metadata["sample_id"]), error.message) from error

    def close(self) -> None:
        self.backend.close()
        super().close()
