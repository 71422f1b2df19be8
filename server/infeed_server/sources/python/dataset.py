"""A user's data set, read by index. Needs no TensorFlow."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from infeed.shared.errors import ConfigError, UserCodeError
from infeed_server.config.code_digest import code_digest
from infeed_server.sources.python.user_code import (
    checked_length,
    dataset_identity,
    load_target,
    make_dataset,
    user_errors,
)
from infeed_server.sources.python.values import Field
from infeed_server.sources.storage_faults import is_storage_fault, retry_faults

Slowest: TypeAlias = tuple[float, int]
"""Seconds and index of the sample that took longest; 0.0: unknown."""

Use: TypeAlias = Callable[[int, int, Any], None]
"""A function of a row, an index, and the sample that was read. Repeated after a storage fault."""

_NO_ELEMENT = object()


@dataclass(frozen=True)
class DatasetOptions:
    """A data set, `module:attr` or the object or function itself, and its options."""

    target: Any
    label: str
    names: tuple[str, ...] | None = None
    fields: tuple[Field, ...] | None = None
    identity: str | None = None


@dataclass(frozen=True)
class Description:
    """The length and the identity of a data set."""

    length: int
    identity: str


class UserDataset:
    """An opened data set. It and its object are used by one thread."""

    def __init__(self, options: DatasetOptions) -> None:
        """Raises `ConfigError`, `SourceError` for an empty data set, and `UserCodeError`."""
        self._label = label = options.label
        target, code = load_target(options.target, label)
        self._object = make_dataset(target, label)
        with user_errors(f"{label}.__getitems__"):
            self._get_many: Any = getattr(self._object, "__getitems__", None)
        length = checked_length(self._object, label)
        identity = options.identity
        if identity is None:
            with user_errors(f"the identity of {label}", ConfigError):
                identity = dataset_identity(self._object, label)
        parts = [label, identity, code_digest(code), length, options.names]
        digest = hashlib.sha256(f"python {json.dumps(parts)}".encode()).hexdigest()
        self.description = Description(length, digest)

    def read_each(self, indices: Sequence[int], use: Use) -> Slowest:
        """Calls `use` with each element before it reads the next, which may use its memory again.

        Raises `UserCodeError`, and `SourceError` for a storage fault that remains after retries.
        """
        if self._get_many is None:
            return use_each(self._label, indices, lambda row: self._get_one(indices[row]), use)

        def use_all() -> None:
            for row, element in enumerate(self._get_all(indices)):
                use(row, indices[row], element)

        retry_faults(use_all, f"samples of {self._label}", is_storage_fault)
        return 0.0, 0

    def _get_one(self, index: int) -> Any:
        with user_errors(f"{self._label}[{index}]", faults_pass=True):
            return self._object[index]

    def _get_all(self, indices: Sequence[int]) -> Iterator[Any]:
        """Yields the elements as they are made."""
        subject = f"{self._label}.__getitems__"
        with user_errors(subject, faults_pass=True):
            elements = iter(self._get_many(list(indices)))
        for count in range(len(indices) + 1):
            with user_errors(subject, faults_pass=True):
                element = next(elements, _NO_ELEMENT)
            if (element is _NO_ELEMENT) != (count == len(indices)):
                found = count if element is _NO_ELEMENT else f"more than {count}"
                raise UserCodeError(
                    f"{subject} returned {found} elements for {len(indices)} indices"
                )
            if element is not _NO_ELEMENT:
                yield element


def use_each(label: str, indices: Sequence[int], get: Callable[[int], Any], use: Use) -> Slowest:
    """Calls `use` with what `get` returns for each row, repeatedly after storage faults."""
    slowest = (0.0, 0)

    def use_one(row: int, index: int) -> None:
        use(row, index, get(row))

    for row, index in enumerate(indices):
        began = time.perf_counter()
        subject = f"sample {index} of {label}"
        retry_faults(partial(use_one, row, index), subject, is_storage_fault)
        slowest = max(slowest, (time.perf_counter() - began, index))
    return slowest
