"""Imports of TensorFlow without the garbage collector, which would take a second of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collects no garbage within the block, and never what is in memory at its end.

    TensorFlow's modules are a million objects that live as long as the process. The collector
    would look through all of them several times while they are imported, and again later.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


__all__ = ["without_collection"]
