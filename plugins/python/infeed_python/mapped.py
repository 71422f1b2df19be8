"""The source of a pipeline with Python functions: samples as the functions return them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import SampleError, UserCodeError
from infeed_formats.columns import ColumnSource
from infeed_formats.elements import read_good
from infeed_python.backend import Backend
from infeed_python.functions import FunctionOptions, Parts
from infeed_python.source import PythonReader
from infeed_python.worker import Request
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices, Keys, example_indices
from infeed_server.sources.work import PythonWork
from infeed_server.storage.faults import one_line


class MappedSource(ColumnSource):
    """A source with functions, which are called where a user's data set would be read."""

    def __init__(
        self,
        source: Source,
        functions: tuple[FunctionOptions, ...],
        identity: str,
        label: str,
        processes: int = 0,
    ) -> None:
        """Starts `processes`, unless the source has its own. `identity` is a hash of the functions;
        `label` is the source's name in messages."""
        self.source = self.behind = source
        keyed = (function for function in functions if function.draw is not None)
        self.keyed_stages = tuple(function.stage for function in keyed)
        self._functions = functions
        self.backend = (
            source.backend if isinstance(source, PythonReader) else Backend(label, processes)
        )
        try:
            fields = functions[-1].fields or self.backend.infer(self._examples())
        except BaseException:  # also a signal
            self.backend.close()
            raise
        made = hashlib.sha256(f"{source.identity} {identity}".encode()).hexdigest()
        super().__init__(source.places, fields, made)

    def read(self, indices: Indices) -> Columns:
        """Reads samples; no function may need a key."""
        assert not self.keyed_stages
        return self.read_keyed(indices, np.zeros((len(indices), 2), np.int64))

    def read_keyed(self, indices: Indices, keys: Keys) -> Columns:
        """Reads the columns of these samples under these keys."""
        request = self._request(indices.tolist())
        try:
            read = self.backend.read(replace(request, keys=keys, result_fields=self.fields))
        except SampleError as error:
            raise self._sample_error(int(error.metadata["sample_id"]), error.problem) from error
        return self.to_columns(read)

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return self.source.known_fields()

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        return self.source.whole_field(name)

    def work(self) -> PythonWork:
        return self.backend.meter.work()

    def close(self) -> None:
        self.backend.close()
        self.source.close()

    def _request(self, indices: Sequence[int]) -> Request:
        if isinstance(self.source, PythonReader):
            return replace(self.source.request(indices), functions=self._functions)
        samples = self._samples(np.array(indices, np.int64))
        return Request(self.backend.label, indices, samples=samples, functions=self._functions)

    def _examples(self) -> Request:
        """Returns the request for the good samples among those that show the fields."""
        indices = example_indices(len(self.source))
        if isinstance(self.source, PythonReader):
            return self._request(indices)

        def read(index: int) -> tuple[int, Parts]:
            return index, self._samples(np.array([index]))[0]

        good = read_good(indices, read, SampleError, UserCodeError)
        numbers, samples = zip(*good, strict=True)
        return Request(self.backend.label, numbers, samples=samples, functions=self._functions)

    def _samples(self, indices: Indices) -> list[Parts]:
        """Reads samples of the source in the form that functions get."""
        columns = self.source.read_checked(indices)
        rows: list[Parts] = [
            {name: column[row] for name, column in columns.items()} for row in range(len(indices))
        ]
        if self.source.parsed:
            return rows
        return [self._parse_row(int(index), row) for index, row in zip(indices, rows, strict=True)]

    def _parse_row(self, index: int, row: Parts) -> Parts:
        try:
            sample = self._parse({name: tf.constant(value) for name, value in row.items()})
        except (tf.errors.InvalidArgumentError, UnicodeError) as error:
            reason = one_line(error)
            raise self._sample_error(index, f"cannot be parsed: {reason}") from error
        return {name: value.numpy() for name, value in sample.items()}

    def _sample_error(self, index: int, problem: str) -> SampleError:
        origin = self.source.provenance(index)
        return SampleError(problem, sample=index, file=origin.file, offset=origin.offset)

    @cached_property
    def _parse(self) -> Callable[[Sample], Sample]:
        traced = tf.function(self.source.parse, autograph=False)
        function: Callable[[Sample], Sample]
        function = traced.get_concrete_function(dict(self.source.columns))
        return function
