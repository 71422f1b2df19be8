"""The worker, which answers requests where the user's Python code runs, without TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from infeed.shared.errors import ConfigError, InfeedError, SampleError, SourceError, UserCodeError
from infeed.shared.spec.dtypes import Array
from infeed_formats.elements import (
    ColumnBuilder,
    Example,
    fit_parts,
    infer_fields,
    read_good,
    split,
    to_values,
)
from infeed_formats.values import Field, UnfitError
from infeed_python.dataset import (
    DatasetOptions,
    Description,
    Slowest,
    UserDataset,
    is_fault,
    use_each,
)
from infeed_python.functions import FunctionOptions, as_parts, load_functions
from infeed_server.config.user_errors import user_errors

Take: TypeAlias = Callable[[int, int, Mapping[str, Any]], None]
"""A function of the row, the index and the parts of a sample."""


@dataclass(frozen=True)
class Request:
    """Samples of the source `label`, and functions to apply to them. The samples are elements of
    the data set `expected`, or `samples`, which the server has read."""

    label: str
    indices: Sequence[int]
    expected: Description | None = None
    fields: tuple[Field, ...] = ()
    """Fields of the elements; empty if unknown."""
    samples: Sequence[Mapping[str, Any]] = ()
    functions: tuple[FunctionOptions, ...] = ()
    keys: Array | Sequence[Any] = ()
    """The key of each sample, for the functions."""
    result_fields: tuple[Field, ...] = ()

    def part(self, rows: slice) -> Request:
        """Returns the request for some of the samples."""
        indices, samples, keys = self.indices[rows], self.samples[rows], self.keys[rows]
        return replace(self, indices=indices, samples=samples, keys=keys)


class Worker:
    """Reads the data set of `options`, or takes samples from the server, and applies functions. It
    opens the data set in advance; the first call raises the error if that fails."""

    def __init__(self, options: DatasetOptions | None) -> None:
        self._options = options
        self._dataset: UserDataset | None = None
        if options is not None:
            with contextlib.suppress(InfeedError):
                self.open()

    def __call__(self, call: tuple[str, tuple[Any, ...]]) -> Any:
        method, arguments = call
        return getattr(self, method)(*arguments)

    def open(self) -> Description:
        """Opens the data set, unless it is open. Raises the errors of `UserDataset`."""
        assert self._options is not None
        if self._dataset is None:
            self._dataset = UserDataset(self._options)
        return self._dataset.description

    def read(self, request: Request) -> tuple[dict[str, Array], Slowest]:
        """Returns the columns of samples, or of the functions' results, and the slowest sample.
        Raises `UserCodeError`, `SampleError`, and `SourceError` for a storage fault that outlasts
        the retries."""
        functions = load_functions(request.functions)
        fields = request.result_fields or request.fields
        builder = ColumnBuilder(fields, len(request.indices))

        def take(row: int, index: int, parts: Mapping[str, Any]) -> None:  # noqa: ARG001
            arrays = self._fitted(request, parts)
            if request.functions:
                arrays = functions.results(as_parts(arrays), request.keys[row], fields)
            builder.set(row, arrays)

        slowest = self._read_each(request, take)
        return builder.columns, slowest

    def infer(self, request: Request) -> tuple[Field, ...]:
        """Returns the fields of samples, or of the functions' results, without the bad samples.
        Raises the first error if all are bad, and `ConfigError` for samples that differ."""
        functions = load_functions(request.functions)
        found: dict[int, Example] = {}

        def take(_: int, index: int, parts: Mapping[str, Any]) -> None:
            if request.functions:
                values = functions.inspect(as_parts(self._fitted(request, parts)), index)
            else:
                values = to_values(parts)
            found[index] = Example(index, values)

        def read(row: int) -> Example:
            part = request.part(slice(row, row + 1))
            self._read_each(part, take)
            return found[part.indices[0]]

        try:
            examples = read_good(range(len(request.indices)), read, UserCodeError, SampleError)
        except SampleError as error:
            raise ConfigError(error.message) from None
        subject = "the result of sample" if request.functions else f"{request.label}: element"
        try:
            return infer_fields(examples)
        except UnfitError as error:
            raise ConfigError(f"{subject} {error}", at=functions.place) from None

    def _read_each(self, request: Request, take: Take) -> Slowest:
        options = self._options
        names = options.names if request.expected and options else None

        def use(row: int, index: int, sample: Any) -> None:
            subject = f"{request.label}[{index}]"
            try:
                with user_errors(subject, UnfitError, InfeedError, passes=is_fault):
                    take(row, index, split(sample, names))
            except UnfitError as error:
                raise SampleError(
                    f"of {request.label} {error}", sample=index, file=request.label
                ) from None

        if request.expected is None:
            return use_each(request.label, request.indices, request.samples.__getitem__, use)
        return self._reopen(request.expected).read_each(request.indices, use)

    def _fitted(self, request: Request, parts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the parts of an element as arrays of its fields; samples have arrays already."""
        if request.expected is None:
            return parts
        declared = self._options is not None and self._options.fields is not None
        return fit_parts(parts, request.fields, allow_others=declared)

    def _reopen(self, expected: Description) -> UserDataset:
        """Returns the data set. Raises `SourceError` if it differs from its description."""
        assert self._options is not None
        label = self._options.label
        try:
            found = self.open()
        except InfeedError as error:
            # No sample is bad just because a new worker cannot open the data set.
            raise SourceError(
                f"a new worker process cannot open {label}: {error.message}", file=label
            ) from error
        if found != expected:
            raise SourceError(
                f"{label} changed since the server opened it: a new worker process found another "
                f"length ({found.length}, was {expected.length}), identity or code; restart the "
                "server",
                file=label,
                fault="changed",
            )
        assert self._dataset is not None
        return self._dataset
