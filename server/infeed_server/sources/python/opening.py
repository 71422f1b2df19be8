"""Opening of a user's data set: by name, or through a function that returns it."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from infeed.shared.errors import ConfigError, SourceError
from infeed_server.config.importer import load
from infeed_server.sources.python.user_errors import user_errors

_METHODS = ("__len__", "__getitem__")


def load_target(target: Any, label: str) -> tuple[Any, Any]:
    """Returns the object or function that `module:attr` names, and what its code is: the module.

    What is not a name is returned as it is. Raises `ConfigError` and `UserCodeError`.
    """
    if not isinstance(target, str):
        return target, target if hasattr(target, "__qualname__") else type(target)
    try:
        with user_errors(f"the module of {label}", lambda error: isinstance(error, ConfigError)):
            loaded = load(target)
    except ConfigError as error:
        raise ConfigError(f"source.python: {error.message}") from None
    return loaded, sys.modules[target.partition(":")[0]]


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
    """Returns its length. Raises `ConfigError` for a wrong one, `SourceError` for an empty one."""
    # Not by len(), whose own errors for a wrong result look like the user's.
    with user_errors(f"{label}.__len__"):
        length = type(dataset).__len__(dataset)
    if isinstance(length, bool) or not hasattr(type(length), "__index__"):
        raise ConfigError(
            f"source.python: {label}.__len__ returned a {type(length).__name__}; it must return an "
            "integer"
        )
    length = int(length)
    if not 0 <= length <= sys.maxsize:
        raise ConfigError(
            f"source.python: {label}.__len__ returned {length}; it must be from 0 to {sys.maxsize}"
        )
    if not length:
        raise SourceError(f"{label} is empty: its __len__ is 0", file=label)
    return length


def _is_indexed(value: Any) -> bool:
    return not inspect.isclass(value) and all(hasattr(type(value), method) for method in _METHODS)
