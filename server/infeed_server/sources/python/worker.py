"""The handlers of requests where Python code of the user runs. Needs no TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from infeed.shared.errors import InfeedError, SourceError
from infeed.shared.spec.dtypes import Array
from infeed_server.sources.python.dataset import DatasetOptions, Description, UserDataset
from infeed_server.sources.python.functions import (
    Chain,
    FunctionOptions,
    Parts,
    ResultRows,
    load_functions,
)
from infeed_server.sources.storage_faults import is_storage_fault, retry_faults


@dataclass(frozen=True)
class Open:
    """Requests the description without fields."""


@dataclass(frozen=True)
class Describe:
    """Requests the description with the fields of these elements, or of those usual."""

    expected: Description
    examples: tuple[int, ...] | None = None


@dataclass(frozen=True)
class DescribeResults:
    """Requests the fields of the functions' results for these elements, or for those usual."""

    expected: Description
    functions: tuple[FunctionOptions, ...]
    examples: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Read:
    """Requests the columns of some elements of the data set that is described.

    With a chain of functions and the keys of these elements, those of its results.
    """

    indices: Sequence[int]
    expected: Description
    mapped: tuple[Chain, Array] | None = None


@dataclass(frozen=True)
class ReadColumns:
    """The columns that were read, and their slowest sample; 0 seconds: unknown."""

    columns: dict[str, Array]
    slowest_sample: int = 0
    slowest_seconds: float = 0.0


class WorkerDataset:
    """Opens the data set in advance; an error of that is raised by the first request."""

    def __init__(self, options: DatasetOptions) -> None:
        self._options = options
        self._dataset: UserDataset | None = None
        with contextlib.suppress(InfeedError):
            self._open()

    def __call__(self, request: Open | Describe | DescribeResults | Read) -> Any:
        if isinstance(request, Open):
            return self._open().description
        expected = request.expected
        dataset = self._reopen(expected)
        if isinstance(request, Describe):
            return dataset.describe(request.examples)
        if isinstance(request, DescribeResults):
            return dataset.result_fields(request.functions, expected.fields, request.examples)
        columns = dataset.read(request.indices, expected.fields, request.mapped)
        return ReadColumns(columns, *dataset.slowest)

    def _open(self) -> UserDataset:
        if self._dataset is None:
            self._dataset = UserDataset(self._options)
        return self._dataset

    def _reopen(self, expected: Description) -> UserDataset:
        """Returns the data set. Raises `SourceError` unless it is the one that was described."""
        label = self._options.label
        try:
            dataset = self._open()
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


@dataclass(frozen=True)
class DescribeSamples:
    """Requests the fields of the functions' results for some samples, given with their indices."""

    functions: tuple[FunctionOptions, ...]
    samples: Sequence[tuple[int, Parts]]


@dataclass(frozen=True)
class Apply:
    """Requests the columns of a chain's results for samples of a source, which has a label."""

    chain: Chain
    label: str
    indices: Sequence[int]
    samples: Sequence[Parts]
    keys: Array


class WorkerFunctions:
    """Applies functions to samples that the server has read."""

    def __init__(self, _: None) -> None: ...

    def __call__(self, request: DescribeSamples | Apply) -> Any:
        if isinstance(request, DescribeSamples):
            return load_functions(request.functions).infer(request.samples)
        results = ResultRows(request.chain, request.keys, request.label)
        for row, index in enumerate(request.indices):
            apply = partial(results.set, row, index, request.samples[row])
            retry_faults(apply, f"sample {index} of {request.label}", is_storage_fault)
        return ReadColumns(results.columns)
