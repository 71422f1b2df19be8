"""Registration of a dict's subclass with JAX, for which it is one leaf before; imports no JAX."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_registered: set[type] = set()


def register_with_jax(kind: type[dict[str, Any]]) -> None:
    """Makes the subclass of dict a container for JAX, if the process has imported JAX."""
    if "jax" not in sys.modules or kind in _registered:
        return
    module = sys.modules.get("jax.tree_util")
    register = getattr(module, "register_pytree_with_keys", None)
    key_type = getattr(module, "DictKey", None)
    if register is None or key_type is None:
        return

    def flatten_with_keys(batch: dict[str, Any]) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        values, names = _flatten(batch)
        return [(key_type(name), x) for name, x in zip(names, values, strict=True)], names

    # No lock: an exception of a signal handler could leave it locked. JAX refuses a second
    # registration, by another thread or of a call that was interrupted.
    with suppress(ValueError):
        register(kind, flatten_with_keys, _to_dict, _flatten)
    _registered.add(kind)


def _flatten(batch: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Returns the values and the names, sorted as JAX sorts them; nothing else is static, or `jit`
    would compile again for the next batch."""
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def _to_dict(names: tuple[str, ...], values: Iterable[Any]) -> dict[str, Any]:
    """Returns a plain dict: other values have no start, epoch and ids."""
    return dict(zip(names, values, strict=True))
