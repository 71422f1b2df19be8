"""A user's data set, read by index. Needs no TensorFlow."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from infeed.shared.errors import ConfigError, SampleError, UserCodeError
from infeed.shared.spec.dtypes import Array
from infeed_server.config.code_digest import code_digest
from infeed_server.sources.python.columns import ColumnBuilder, fit_parts
from infeed_server.sources.python.elements import infer_fields, read_examples, split
from infeed_server.sources.python.functions import (
    Chain,
    Parts,
    ResultRows,
    as_parts,
)
from infeed_server.sources.python.opening import (
    checked_length,
    dataset_identity,
    load_target,
    make_dataset,
)
from infeed_server.sources.python.user_errors import is_unfit_or_fault, user_errors
from infeed_server.sources.python.values import Field, UnfitError
from infeed_server.sources.storage_faults import is_storage_fault, retry_faults

_NO_ELEMENT = object()


@dataclass(frozen=True)
class DatasetOptions:
    """The options of a data set that every reader of it needs.

    `target` is `module:attr`, or the object or function itself; `label` is its name in messages.
    """

    target: Any
    label: str
    names: tuple[str, ...] | None = None
    fields: tuple[Field, ...] | None = None
    identity: str | None = None


@dataclass(frozen=True)
class Description:
    """What a data set holds; `fields` are empty until they are known."""

    length: int
    identity: str
    fields: tuple[Field, ...] = ()


class UserDataset:
    """An opened data set. It and its object are used by one thread."""

    def __init__(self, options: DatasetOptions) -> None:
        """Raises `ConfigError`, `SourceError` for an empty data set, and `UserCodeError`."""
        self._label = options.label
        self._names = options.names
        self._declared = options.fields
        target, code = load_target(options.target, self._label)
        self._object = make_dataset(target, self._label)
        self.slowest = (0, 0.0)
        """The sample of the last `read` that took longest, and its seconds; 0.0: unknown."""
        with user_errors(f"{self._label}.__getitems__"):
            self._get_many: Any = getattr(self._object, "__getitems__", None)
        length = checked_length(self._object, self._label)
        identity = options.identity
        if identity is None:
            with user_errors(f"the identity of {self._label}", _is_config_error):
                identity = dataset_identity(self._object, self._label)
        parts = [self._label, identity, code_digest(code), length, self._names]
        digest = hashlib.sha256(f"python {json.dumps(parts)}".encode()).hexdigest()
        self.description = Description(length, digest, options.fields or ())

    def describe(self) -> Description:
        """Returns the description with the fields: as declared, or of some elements."""
        return replace(self.description, fields=self._declared or self._infer_fields())

    def read(
        self,
        indices: Sequence[int],
        fields: Sequence[Field],
        mapped: tuple[Chain, Array] | None = None,
    ) -> dict[str, Array]:
        """Reads the columns of these elements, or with a chain and keys its results.

        Raises `UserCodeError` for an exception of the object or a function, `SampleError` for an
        element that does not fit the fields, and `SourceError` for a storage fault that remains
        after retries.
        """
        if mapped is None:
            columns = ColumnBuilder(fields, len(indices), allow_others=self._declared is not None)
            self._read_each(indices, partial(self._set_row, columns))
            return columns.columns
        results = ResultRows(*mapped, self._label)
        self._read_each(
            indices,
            lambda row, index, element: results.set(
                row, index, self._to_sample(index, element, fields)
            ),
        )
        return results.columns

    def _read_each(self, indices: Sequence[int], set_row: Callable[[int, int, Any], None]) -> None:
        """Calls `set_row` with the row, index and value of each element."""

        self.slowest = (0, 0.0)

        def read_one(row: int, index: int) -> None:
            began = time.perf_counter()
            set_row(row, index, self._get_one(index))
            seconds = time.perf_counter() - began
            if seconds > self.slowest[1]:
                self.slowest = (index, seconds)

        def read_all() -> None:
            for row, element in enumerate(self._get_all(indices)):
                set_row(row, indices[row], element)

        if self._get_many is not None:
            retry_faults(read_all, f"samples of {self._label}", is_storage_fault)
            return
        for row, index in enumerate(indices):
            # Copied before the next is read: an object may use its memory again.
            read = partial(read_one, row, index)
            retry_faults(read, f"sample {index} of {self._label}", is_storage_fault)

    def _get_one(self, index: int) -> Any:
        with user_errors(f"{self._label}[{index}]", is_storage_fault):
            return self._object[index]

    def _get_all(self, indices: Sequence[int]) -> Iterator[Any]:
        """Yields the elements as they are made: the next may use the memory of the one before."""
        subject = f"{self._label}.__getitems__"
        with user_errors(subject, is_storage_fault):
            elements = iter(self._get_many(list(indices)))
        count = 0
        while True:
            with user_errors(subject, is_storage_fault):
                element = next(elements, _NO_ELEMENT)
            if element is _NO_ELEMENT or count == len(indices):
                break
            count += 1
            yield element
        if element is not _NO_ELEMENT or count < len(indices):
            found = count if element is _NO_ELEMENT else f"more than {count}"
            raise UserCodeError(f"{subject} returned {found} elements for {len(indices)} indices")

    def _set_row(self, builder: ColumnBuilder, row: int, index: int, element: Any) -> None:
        with self._sample_errors(index):
            builder.set(row, split(element, self._names))

    def _to_sample(self, index: int, element: Any, fields: Sequence[Field]) -> Parts:
        """Returns an element as a function gets it: it may change the arrays."""
        with self._sample_errors(index):
            parts = split(element, self._names)
            arrays = fit_parts(parts, fields, allow_others=self._declared is not None)
            return as_parts({name: array.copy() for name, array in arrays.items()})

    def _get_example(self, index: int) -> Any:
        if self._get_many is None:
            return self._get_one(index)
        (element,) = self._get_all([index])
        return element

    @contextmanager
    def _sample_errors(self, index: int) -> Iterator[None]:
        try:
            with user_errors(f"{self._label}[{index}]", is_unfit_or_fault):
                yield
        except UnfitError as error:
            raise SampleError(
                f"sample {index} of {self._label} {error}", sample_id=index, file=self._label
            ) from None

    def _infer_fields(self) -> tuple[Field, ...]:
        def read(index: int) -> Mapping[str, Any]:
            subject = f"sample {index} of {self._label}"
            return retry_faults(partial(self._read_parts, index), subject, is_storage_fault)

        examples = read_examples(self.description.length, read)
        try:
            with user_errors(f"an element of {self._label}", is_unfit_or_fault):
                return infer_fields(examples)
        except UnfitError as error:
            raise ConfigError(f"source.python: {self._label}: element {error}") from None

    def _read_parts(self, index: int) -> Mapping[str, Any]:
        element = self._get_example(index)
        try:
            with user_errors(f"{self._label}[{index}]", is_unfit_or_fault):
                return dict(split(element, self._names))  # a mapping may read at each access
        except UnfitError as error:
            raise ConfigError(f"source.python: element {index} of {self._label} {error}") from None


def _is_config_error(error: BaseException) -> bool:
    return isinstance(error, ConfigError)
