"""Check that a framework's object holds the block of shared memory that it was made from."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.harness.blocks import SharingServer


def check_block_is_held(convert: Callable[[Any], Any], *, aliases: bool) -> None:
    """Converts an array of a block, lets the array go, and has the server write to its free blocks.
    `aliases`: whether the object must not be a copy."""
    server = SharingServer()
    value = convert(server.send(1, 7))
    gc.collect()
    free = server.pool.collect()
    assert free == ([] if aliases else [1])
    for number in free:
        server.send(number, 9)
    assert (np.asarray(value) == 7).all()
    del value
    gc.collect()
    assert 1 in [*free, *server.pool.collect()]
