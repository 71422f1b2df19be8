"""The user's Python functions of samples: loading, random generators, results.

They run where samples are read, on a thread or in worker processes, and need no TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from infeed.shared.errors import ConfigError, InfeedError, KeyPath, SourceError, format_path, within
from infeed.shared.spec.dtypes import Array
from infeed_formats.elements import fit_parts, split, to_values
from infeed_formats.values import Field, UnfitError, Value
from infeed_python.dataset import is_fault
from infeed_python.function_identity import function_identity
from infeed_server.config.importer import load
from infeed_server.config.user_errors import user_errors

Parts = Mapping[str, Any]
"""A sample as a function gets it: NumPy arrays, NumPy scalars and bytes."""

_MAX_LOADED = 64
"""Chains of functions that a process keeps loaded; a worker needs those of its pipeline."""


@dataclass(frozen=True)
class FunctionOptions:
    """A function, its index among the transforms, its draw number if it is random, and its result's
    fields if declared. `identity` is a hash of the code that the server loaded."""

    target: Any = field(hash=False)  # it may not be hashable
    label: str
    ordinal: int
    draw: int | None
    identity: str
    fields: tuple[Field, ...] | None = None

    @property
    def place(self) -> KeyPath:
        return "transforms", self.ordinal, "map"

    @property
    def stage(self) -> str:
        return format_path(self.place)


def identity_digest(function: Any, name: str) -> str:
    """Returns a hash that is the same in every process that has the function's code."""
    return hashlib.sha256(json.dumps(function_identity(function, name)).encode()).hexdigest()


def random_generator(key: Array, draw: int) -> np.random.Generator:
    """Returns the generator for a sample's 128-bit key and a draw number. The number is the highest
    of the counter's four words, so no two streams overlap."""
    words = np.asarray(key, np.int64).view(np.uint64)
    counter = np.array([0, 0, 0, draw], np.int64).view(np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=counter))


class LoadedFunctions:
    """Functions loaded in this process, applied one after the other."""

    def __init__(self, functions: Sequence[FunctionOptions]) -> None:
        """Raises `SourceError` if a function differs from the one that the server loaded."""
        self._functions = [(options, _load(options)) for options in functions]
        self.stages = ", ".join(options.stage for options in functions)
        self.place = (
            functions[0].place if len(functions) == 1 else ("transforms",) * len(functions[:1])
        )

    def results(self, sample: Parts, key: Array, fields: Sequence[Field]) -> dict[str, Array]:
        """Returns the last function's result as arrays of these fields. Raises `UserCodeError`,
        `UnfitError` for a wrong result, and storage faults unchanged."""
        result = self._apply(sample, key)
        with _after(self.stages):
            return fit_parts(result, fields)

    def inspect(self, sample: Parts, number: int) -> dict[str, Value]:
        """Returns the result, which shows its fields. Raises `ConfigError` if two calls differ."""
        key = np.array([0, number], np.int64)
        first, second = (to_values(self._apply(sample, key)) for _ in range(2))
        for name, value in first.items():
            if name not in second or not _equal(value.array, second[name].array):
                raise ConfigError(
                    f"two calls with sample {number} and the same random numbers differ in the "
                    f"field {name!r}, so a batch is not reproducible. Write the function as "
                    "f(sample, rng), draw only from rng, and keep no state between calls",
                    at=self.place,
                )
        return first

    def _apply(self, sample: Parts, key: Array) -> Parts:
        # Functions may change the arrays.
        sample = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in sample.items()
        }
        for options, function in self._functions:
            rng = () if options.draw is None else (random_generator(key, options.draw),)
            with (
                within(*options.place),
                _after(options.stage),
                user_errors(options.label, UnfitError, passes=is_fault),
            ):
                sample = _to_parts(options, function(dict(sample), *rng))
        return sample


@lru_cache(_MAX_LOADED)
def load_functions(functions: tuple[FunctionOptions, ...]) -> LoadedFunctions:
    """Returns the functions, which a process loads once. Raises the errors of `LoadedFunctions`."""
    return LoadedFunctions(functions)


def as_parts(arrays: Mapping[str, Any]) -> Parts:
    """Returns arrays as a function gets them: one without dimensions is a NumPy scalar or bytes."""
    return {
        name: array[()] if isinstance(array, np.ndarray) else array
        for name, array in arrays.items()
    }


@contextmanager
def _after(stage: str) -> Iterator[None]:
    """Names the stage in errors about a result."""
    try:
        yield
    except UnfitError as error:
        raise UnfitError(f"after {stage} {error}") from None


def _load(options: FunctionOptions) -> Callable[..., Any]:
    if not isinstance(options.target, str):
        return options.target  # type: ignore[no-any-return]
    try:
        with user_errors(f"the module of {options.label}", InfeedError):
            function: Callable[..., Any] = load(options.target)
    except InfeedError as error:
        # No sample is bad just because a new worker cannot load the function.
        raise SourceError(
            f"a new worker process cannot load {options.label}: {error.message}", at=options.place
        ) from error
    if identity_digest(function, options.target) != options.identity:
        raise SourceError(
            f"the code of {options.label} changed since the server started; restart the server",
            at=options.place,
            fault="changed",
        )
    return function


def _to_parts(options: FunctionOptions, result: Any) -> Parts:
    """Returns a function's result as arrays. Raises `UnfitError`, and any error of its values."""
    if not isinstance(result, Mapping):
        raise UnfitError(
            f"is a {type(result).__name__}; {options.label} must return a dict of field name → "
            "array, number, text or bytes"
        )
    parts = split(result)
    if options.fields is not None:
        return as_parts(fit_parts(parts, options.fields, allow_others=True))
    return as_parts({name: value.array for name, value in to_values(parts).items()})


def _equal(one: Array, other: Array) -> bool:
    """Returns whether the bits are equal, including those of NaNs."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return (
        one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()
    )
