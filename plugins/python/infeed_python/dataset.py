"""A user's data set, read by index. Needs no TensorFlow."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from infeed.shared.errors import ConfigError, SourceError, UserCodeError
from infeed_formats.values import Field
from infeed_server.config.code_digest import code_digest
from infeed_server.config.importer import load
from infeed_server.config.user_errors import user_errors
from infeed_server.storage.faults import is_storage_fault, retry_faults

_METHODS = ("__len__", "__getitem__")

_ATTRIBUTES = ("fingerprint", "_fingerprint")
"""Attributes or methods that identify the data; Hugging Face's data sets have the second."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_WITHOUT_IDENTITY = ("builtins", "numpy")
"""Packages whose types have a `repr` that abbreviates the content or repeats all of it."""


def is_fault(error: BaseException) -> bool:
    """Returns whether an error of the user's code is a failure to read."""
    return isinstance(error, SourceError) or is_storage_fault(error)


def load_target(target: Any, label: str) -> tuple[Any, Any]:
    """Returns the target, loaded if it is a `module:attr`, and the object that has its code."""
    if not isinstance(target, str):
        return target, target if hasattr(target, "__qualname__") else type(target)
    with user_errors(f"the module of {label}", ConfigError):
        return load(target), sys.modules[target.partition(":")[0]]


def make_dataset(target: Any, label: str) -> Any:
    """Returns the data set: the target itself, or what it returns if it is a function."""
    made = target
    if callable(target) and not _is_indexed(target):
        with user_errors(label):
            made = target()
    if _is_indexed(made):
        return made
    raise ConfigError(
        f"{label} {'is' if made is target else 'returned'} a {type(made).__name__}, without "
        f"{' or '.join(_METHODS)}; serve an iterable as a tf.data.Dataset: source: {{dataset: ...}}"
    )


def checked_length(dataset: Any, label: str) -> int:
    """Returns the length. Raises `UserCodeError`, and `SourceError` for an empty data set."""
    with user_errors(f"{label}.__len__"):
        length = len(dataset)
    if not length:
        raise SourceError(f"{label} is empty: its __len__ is 0", file=label)
    return length


def dataset_identity(dataset: Any, label: str) -> str:
    """Returns the object's own identity. Raises `ConfigError`, and any error of its methods."""
    for name in _ATTRIBUTES:
        value = getattr(dataset, name, None)
        if callable(value):
            value = value()
        if isinstance(value, str | bytes | int):
            return f"{name} {value!r}"
        if value is not None:
            raise ConfigError(
                f"the {name} of {label} is a {type(value).__name__}; make it text, bytes or an "
                "integer, or declare identity: ..."
            )
    return f"repr {_own_repr(dataset, label)}"


def _is_indexed(value: Any) -> bool:
    return not inspect.isclass(value) and all(hasattr(type(value), method) for method in _METHODS)


def _own_repr(dataset: Any, label: str) -> str:
    """Returns `repr(dataset)` if it identifies the data, as that of Grain's sources does."""
    kind: Any = type(dataset)
    if kind.__repr__ is object.__repr__:
        reason = f"a {kind.__name__} has no repr of its own"
    elif _ADDRESS.search(text := repr(dataset)):
        reason = "its repr contains a memory address, which changes at each start"
    elif kind.__module__.partition(".")[0] in _WITHOUT_IDENTITY:
        reason = f"the repr of a {kind.__name__} does not identify its content"
    else:
        return text
    raise ConfigError(
        f"{label} has no identity: it has neither fingerprint nor _fingerprint, and {reason}; "
        "declare one and change it with the data: identity: v1"
    )


Slowest: TypeAlias = tuple[float, int]
"""Seconds and index of the slowest sample; 0.0 seconds if unknown."""

Use: TypeAlias = Callable[[int, int, Any], None]
"""A function of a row, an index and a sample; called again after a storage fault."""

_NO_ELEMENT = object()


@dataclass(frozen=True)
class DatasetOptions:
    """A data set and its options. `target` is a `module:attr`, or the object or function itself."""

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
    """An opened data set, used by one thread like the object in it."""

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
        """Calls `use` with each element before it reads the next, which may reuse its memory.
        Raises `UserCodeError`, and `SourceError` for a storage fault that outlasts the retries."""
        if self._get_many is None:
            return use_each(self._label, indices, lambda row: self._get_one(indices[row]), use)

        def use_all() -> None:
            for row, element in enumerate(self._get_all(indices)):
                use(row, indices[row], element)

        retry_faults(use_all, f"samples of {self._label}", is_storage_fault)
        return 0.0, 0

    def _get_one(self, index: int) -> Any:
        with user_errors(f"{self._label}[{index}]", passes=is_fault):
            return self._object[index]

    def _get_all(self, indices: Sequence[int]) -> Iterator[Any]:
        """Yields the elements as they are made."""
        subject = f"{self._label}.__getitems__"
        with user_errors(subject, passes=is_fault):
            elements = iter(self._get_many(list(indices)))
        for count in range(len(indices) + 1):
            with user_errors(subject, passes=is_fault):
                element = next(elements, _NO_ELEMENT)
            if (element is _NO_ELEMENT) != (count == len(indices)):
                found = count if element is _NO_ELEMENT else f"more than {count}"
                raise UserCodeError(
                    f"{subject} returned {found} elements for {len(indices)} indices"
                )
            if element is not _NO_ELEMENT:
                yield element


def use_each(label: str, indices: Sequence[int], get: Callable[[int], Any], use: Use) -> Slowest:
    """Calls `use` with the result of `get` for each row, again after a storage fault."""
    slowest = (0.0, 0)

    def use_one(row: int, index: int) -> None:
        use(row, index, get(row))

    for row, index in enumerate(indices):
        began = time.perf_counter()
        subject = f"sample {index} of {label}"
        retry_faults(partial(use_one, row, index), subject, is_storage_fault)
        slowest = max(slowest, (time.perf_counter() - began, index))
    return slowest
