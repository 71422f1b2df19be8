"""The identity of a user's data set: a text that changes with its samples."""

from __future__ import annotations

import re
from typing import Any

from infeed.shared.errors import ConfigError

_ATTRIBUTES = ("fingerprint", "_fingerprint")
"""An attribute or method of the object; Hugging Face's data sets have the second."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_WITHOUT_IDENTITY = ("builtins", "numpy")
"""Packages of types whose `repr` abbreviates the content, or is as long as it."""


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


def _own_repr(dataset: Any, label: str) -> str:
    """Returns `repr(dataset)`, if it tells one data set from another, as Grain's sources do."""
    kind: Any = type(dataset)
    reason = f"a {kind.__name__} has no repr of its own"
    if kind.__repr__ is not object.__repr__:
        text = repr(dataset)
        reason = "its repr has a memory address, which changes with each start"
        if not _ADDRESS.search(text):
            reason = f"the repr of a {kind.__name__} does not identify its content"
            if kind.__module__.partition(".")[0] not in _WITHOUT_IDENTITY:
                return text
    raise ConfigError(
        f"source.python: {label} has no identity, by which servers and cursors know its samples: "
        f"it has neither fingerprint nor _fingerprint, and {reason}. Declare one, which you change "
        "with the data: identity: v1; or give the object an attribute or a method fingerprint"
    )
