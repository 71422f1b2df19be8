"""The worker: answers requests where Python code of the user runs. Needs no TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from infeed.shared.errors import InfeedError, SourceError
from infeed.shared.spec.dtypes import Array
from infeed_server.sources.python.dataset import DatasetOptions, Description, UserDataset
from infeed_server.sources.python.elements import Example
from infeed_server.sources.python.functions import (
    Chain,
    FunctionOptions,
    Parts,
    ResultRows,
    load_functions,
)
from infeed_server.sources.python.values import Field
from infeed_server.sources.storage_faults import is_storage_fault, retry_faults


@dataclass(frozen=True)
class ReadColumns:
    """The columns that were read, and their slowest sample; 0 seconds: unknown."""

    columns: dict[str, Array]
    slowest_sample: int = 0
    slowest_seconds: float = 0.0


class Worker:
    """Reads a data set with `options`, or applies functions to samples that the server has read.

    A request is the name of a method and its arguments. The data set is opened in advance; the
    first request raises an error of that.
    """

    def __init__(self, options: DatasetOptions | None) -> None:
        self._options = options
        self._dataset: UserDataset | None = None
        if options is not None:
            with contextlib.suppress(InfeedError):
                self._open(options)

    def __call__(self, request: tuple[str, tuple[Any, ...]]) -> Any:
        method, arguments = request
        return getattr(self, method)(*arguments)

    def open(self) -> Description:
        assert self._options is not None
        return self._open(self._options).description

    def describe(self, expected: Description) -> Description:
        """Returns the description with the fields of some elements."""
        return self._reopen(expected).describe()

    def read(
        self,
        expected: Description,
        indices: Sequence[int],
        mapped: tuple[Chain, Array] | None = None,
    ) -> ReadColumns:
        """Reads elements, or the results of a chain of functions with a key for each."""
        dataset = self._reopen(expected)
        columns = dataset.read(indices, expected.fields, mapped)
        return ReadColumns(columns, *dataset.slowest)

    def infer(
        self, functions: tuple[FunctionOptions, ...], samples: Sequence[Example]
    ) -> tuple[Field, ...]:
        """Returns the fields of the functions' results, inferred from these samples."""
        return load_functions(functions).infer(samples)

    def apply(
        self,
        chain: Chain,
        label: str,
        indices: Sequence[int],
        samples: Sequence[Parts],
        keys: Array,
    ) -> ReadColumns:
        """Returns the results for samples of the source that messages call `label`."""
        results = ResultRows(chain, keys, label)
        for row, index in enumerate(indices):
            apply = partial(results.set, row, index, samples[row])
            retry_faults(apply, f"sample {index} of {label}", is_storage_fault)
        return ReadColumns(results.columns)

    def _open(self, options: DatasetOptions) -> UserDataset:
        if self._dataset is None:
            self._dataset = UserDataset(options)
        return self._dataset

    def _reopen(self, expected: Description) -> UserDataset:
        """Returns the data set. Raises `SourceError` unless it is the one that was described."""
        assert self._options is not None
        label = self._options.label
        try:
            dataset = self._open(self._options)
        except InfeedError as error:
            # No sample is bad because a replaced worker cannot open the data set.
            raise SourceError(
                f"a new worker process cannot open {label}: {error.message}", file=label
            ) from error
        found = dataset.description
        if (found.length, found.identity) != (expected.length, expected.identity):
            raise SourceError(
                f"{label} changed since the server opened it: a new worker process finds another "
                f"length ({found.length}, it was {expected.length}), identity or code; restart the "
                "server",
                file=label,
                fault="changed",
            )
        return dataset
