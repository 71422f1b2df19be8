"""Imports of TensorFlow without garbage collection, which would take a second."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Disables garbage collection within the block, and exempts the objects it leaves for good.

    TensorFlow's modules are a million objects that live as long as the process. The collector
    would traverse all of them several times during the import, and again later.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
