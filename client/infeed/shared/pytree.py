"""Registration of a dict subclass with JAX, which otherwise sees one leaf; does not import JAX."""

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

    # No lock: a signal handler's exception could leave it locked. JAX refuses a second
    # registration, by another thread or after an interrupted call.
    with suppress(ValueError):
        register(kind, flatten_with_keys, _to_dict, _flatten)
    _registered.add(kind)


def _flatten(batch: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Returns values and names, in JAX's sort order. Only the names are static: anything else would
    make `jit` compile again for each batch."""
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def _to_dict(names: tuple[str, ...], values: Iterable[Any]) -> dict[str, Any]:
    """Returns a plain dict, as computed values have no start, epoch or ids."""
    return dict(zip(names, values, strict=True))
