"""The user's functions of samples in Python: loading, random generators, results.

They run where a data set is read, in a thread or in worker processes. Needs no TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from infeed.shared.errors import ConfigError, InfeedError, SampleError, SourceError, UserCodeError
from infeed.shared.spec.dtypes import Array
from infeed_server.config.function_identity import function_identity
from infeed_server.config.importer import load
from infeed_server.sources.python.columns import ColumnBuilder, fit_parts
from infeed_server.sources.python.elements import Example, infer_fields, split
from infeed_server.sources.python.user_errors import is_unfit_or_fault, user_errors
from infeed_server.sources.python.values import Field, UnfitError, to_value

Parts = Mapping[str, Any]
"""A sample as a function gets it: NumPy arrays, scalars of NumPy, and bytes."""

_MAX_LOADED = 64
"""Chains of functions that a process keeps; a worker has the chains of its pipeline."""


@dataclass(frozen=True)
class FunctionOptions:
    """A function, by its name `module:attr` or itself, and its place among the transforms.

    `identity` is a hash of its code as the server found it. `fields` are the declared ones of its
    results.
    """

    target: Any = field(hash=False)  # which may have no hash
    label: str
    ordinal: int
    keyed: bool
    identity: str
    fields: tuple[Field, ...] | None = None

    @property
    def stage(self) -> str:
        return f"transforms[{self.ordinal}].map"


@dataclass(frozen=True)
class Chain:
    """Functions that are applied one after the other, and the fields of the last one's result."""

    functions: tuple[FunctionOptions, ...]
    fields: tuple[Field, ...]


def identity_digest(function: Any, name: str) -> str:
    """Returns a hash that is the same in every process that has the function's code."""
    return hashlib.sha256(json.dumps(function_identity(function, name)).encode()).hexdigest()


def random_generator(key: Array, ordinal: int) -> np.random.Generator:
    """Returns the generator of a sample's key and a transform's ordinal.

    Philox's key has 128 bits, as a sample's. Its counter starts at the ordinal in the highest
    of four words, so the streams of two transforms never meet.
    """
    words = np.asarray(key, np.int64).view(np.uint64)
    counter = np.array([0, 0, 0, ordinal], np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=counter))


class LoadedFunctions:
    """The functions of a pipeline, loaded in this process."""

    def __init__(self, functions: Sequence[FunctionOptions]) -> None:
        """Raises `SourceError` for a function that is not the one that the server found."""
        self._functions = [(options, _load(options)) for options in functions]
        self.stages = ", ".join(options.stage for options in functions)

    def apply(self, sample: Parts, key: Array) -> Parts:
        """Returns the result of the last function.

        Raises `UserCodeError` for what a function raises, storage faults unchanged, and
        `UnfitError` for a result that is no sample.
        """
        for options, function in self._functions:
            sample = _call(options, function, sample, key)
        return sample

    def infer(self, samples: Sequence[Example]) -> tuple[Field, ...]:
        """Returns the fields of the results, inferred from some samples.

        A sample that a function raises for is left out. Raises the error of the first, if it does
        for all, and `ConfigError` for results that differ in their fields or between two calls.
        """
        examples: list[Example] = []
        errors: list[UserCodeError] = []
        for number, sample in samples:
            try:
                examples.append(Example(number, self._inspect(number, sample)))
            except UserCodeError as error:
                errors.append(error)
        if not examples:
            raise errors[0]
        try:
            return infer_fields(examples)
        except UnfitError as error:
            raise ConfigError(f"{self.stages}: the result of sample {error}") from None

    def _inspect(self, number: int, sample: Parts) -> Parts:
        try:
            key = np.array([0, number], np.int64)
            first, second = (
                {name: to_value(value) for name, value in self.apply(_copied(sample), key).items()}
                for _ in range(2)
            )
        except UnfitError as error:
            raise ConfigError(f"{self.stages}: the result of sample {number} {error}") from None
        for name, value in first.items():
            if name not in second or not _equal(value.array, second[name].array):
                raise ConfigError(
                    f"{self.stages}: two calls with sample {number} and the same random numbers "
                    f"differ in the field {name!r}; such a batch is not reproducible. Write the "
                    "function as f(sample, rng), draw from rng only, and keep nothing between calls"
                )
        return {name: value.array[()] for name, value in first.items()}


@lru_cache(_MAX_LOADED)
def load_functions(functions: tuple[FunctionOptions, ...]) -> LoadedFunctions:
    """Returns the functions, which a process loads once. Raises the errors of `LoadedFunctions`."""
    return LoadedFunctions(functions)


class ResultRows:
    """Fills the columns of a chain's results, row by row."""

    def __init__(self, chain: Chain, keys: Array, label: str) -> None:
        """`keys` has one for each row; `label` is the name of the source in messages."""
        self._functions = load_functions(chain.functions)
        self._keys = keys
        self._label = label
        declared = chain.functions[-1].fields is not None
        self._builder = ColumnBuilder(chain.fields, len(keys), allow_others=declared)

    @property
    def columns(self) -> dict[str, Array]:
        return self._builder.columns

    def set(self, row: int, index: int, sample: Parts) -> None:
        """Applies the functions to the sample of this index.

        Raises `UserCodeError`, `SampleError` for a result that does not fit the fields, and storage
        faults unchanged.
        """
        try:
            self._builder.set(row, self._functions.apply(sample, self._keys[row]))
        except UnfitError as error:
            raise SampleError(
                f"sample {index} of {self._label} after {self._functions.stages} {error}",
                sample_id=index,
                file=self._label,
            ) from None


def as_parts(arrays: Mapping[str, Array]) -> Parts:
    """Returns arrays as a function gets them: without dimensions, a scalar of NumPy or bytes."""
    return {name: array[()] for name, array in arrays.items()}


def _copied(sample: Parts) -> Parts:
    """Returns a sample whose arrays a function may change."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in sample.items()
    }


def _load(options: FunctionOptions) -> Callable[..., Any]:
    if not isinstance(options.target, str):
        return options.target  # type: ignore[no-any-return]
    try:
        with user_errors(f"the module of {options.label}", _is_infeed_error):
            function: Callable[..., Any] = load(options.target)
    except InfeedError as error:
        # No sample is bad because a replaced worker cannot load the function.
        raise SourceError(
            f"{options.stage}: a new worker process cannot load {options.label}: {error.message}"
        ) from error
    if identity_digest(function, options.target) != options.identity:
        raise SourceError(
            f"{options.stage}: the code of {options.label} changed since the server started; "
            "restart the server",
            fault="changed",
        )
    return function


def _call(
    options: FunctionOptions, function: Callable[..., Any], sample: Parts, key: Array
) -> Parts:
    arguments = (random_generator(key, options.ordinal),) if options.keyed else ()
    try:
        with user_errors(options.label, is_unfit_or_fault):
            return _to_parts(options, function(dict(sample), *arguments))
    except UserCodeError as error:
        raise UserCodeError(error.message, stage=options.stage) from error


def _to_parts(options: FunctionOptions, result: Any) -> Parts:
    """Returns what a function returned as arrays. Raises also what its values raise."""
    if not isinstance(result, Mapping):
        raise UnfitError(
            f"is a {type(result).__name__}; {options.label} must return a dict of field name → "
            "array, number, text or bytes"
        )
    parts = split(result)
    if options.fields is None:
        return {name: to_value(value).array[()] for name, value in parts.items()}
    return as_parts(fit_parts(parts, options.fields, allow_others=True))


def _equal(one: Array, other: Array) -> bool:
    """Returns whether the bits are equal, of NaN too."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return (
        one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()
    )


def _is_infeed_error(error: BaseException) -> bool:
    return isinstance(error, InfeedError)
