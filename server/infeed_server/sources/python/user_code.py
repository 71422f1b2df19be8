"""The user's code in Python: its loading, its errors, and the identity of a data set."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infeed.shared.errors import ConfigError, SourceError, UserCodeError
from infeed_server.config.importer import load
from infeed_server.config.user_errors import user_traceback
from infeed_server.sources.storage_faults import is_storage_fault

_METHODS = ("__len__", "__getitem__")

_ATTRIBUTES = ("fingerprint", "_fingerprint")
"""An attribute or method of the object; Hugging Face's data sets have the second."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_WITHOUT_IDENTITY = ("builtins", "numpy")
"""Packages of types whose `repr` abbreviates the content, or is as long as it."""


@contextmanager
def user_errors(
    subject: str, *passed: type[BaseException], faults_pass: bool = False
) -> Iterator[None]:
    """Turns what the user's code in the block raises, also `sys.exit()`, into a `UserCodeError`.

    Errors of the types `passed`, and storage faults if they pass, are raised unchanged.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, passed) or (faults_pass and is_storage_fault(error)):
            raise
        raise UserCodeError(
            f"{subject} raised {type(error).__name__}:\n{user_traceback(error)}"
        ) from error


def load_target(target: Any, label: str) -> tuple[Any, Any]:
    """Returns the object or function that `module:attr` names or is, and what has its code."""
    if not isinstance(target, str):
        return target, target if hasattr(target, "__qualname__") else type(target)
    try:
        with user_errors(f"the module of {label}", ConfigError):
            return load(target), sys.modules[target.partition(":")[0]]
    except ConfigError as error:
        raise ConfigError(f"source.python: {error.message}") from None


def make_dataset(target: Any, label: str) -> Any:
    """Returns the data set itself: the object, or what the function returns."""
    made = target
    if callable(target) and not _is_indexed(target):
        with user_errors(label):
            made = target()
    if _is_indexed(made):
        return made
    lacking = " and no ".join(method for method in _METHODS if not hasattr(type(made), method))
    raise ConfigError(
        f"source.python: {label} {'is' if made is target else 'returned'} a "
        f"{type(made).__name__}, which has no {lacking}; an indexed data set has "
        f"{' and '.join(_METHODS)}. One that can only be iterated over is served as a "
        "tf.data.Dataset: source: {dataset: ...}"
    )


def checked_length(dataset: Any, label: str) -> int:
    """Returns its length. Raises `UserCodeError`, and `SourceError` for an empty data set."""
    with user_errors(f"{label}.__len__"):
        length = len(dataset)
    if not length:
        raise SourceError(f"{label} is empty: its __len__ is 0", file=label)
    return length


def dataset_identity(dataset: Any, label: str) -> str:
    """Returns the object's own identity. Raises `ConfigError`, and whatever its methods raise."""
    for name in _ATTRIBUTES:
        value = getattr(dataset, name, None)
        if callable(value):
            value = value()
        if isinstance(value, str | bytes | int):
            return f"{name} {value!r}"
        if value is not None:
            raise ConfigError(
                f"source.python: the {name} of {label} is a {type(value).__name__}, not text, "
                "bytes or an integer; or declare identity: ..."
            )
    return f"repr {_own_repr(dataset, label)}"


def _is_indexed(value: Any) -> bool:
    return not inspect.isclass(value) and all(hasattr(type(value), method) for method in _METHODS)


def _own_repr(dataset: Any, label: str) -> str:
    """Returns `repr(dataset)`, if it tells one data set from another, as Grain's sources do."""
    kind: Any = type(dataset)
    if kind.__repr__ is object.__repr__:
        reason = f"a {kind.__name__} has no repr of its own"
    elif _ADDRESS.search(text := repr(dataset)):
        reason = "its repr has a memory address, which changes with each start"
    elif kind.__module__.partition(".")[0] in _WITHOUT_IDENTITY:
        reason = f"the repr of a {kind.__name__} does not identify its content"
    else:
        return text
    raise ConfigError(
        f"source.python: {label} has no identity, by which servers and cursors know its samples: "
        f"it has neither fingerprint nor _fingerprint, and {reason}. Declare one, which you change "
        "with the data: identity: v1; or give the object an attribute or a method fingerprint"
    )
