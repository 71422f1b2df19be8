"""Constant batches of the transport cases, so that only the transport costs time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BATCH = 64
SIDE = 224
SHAPE = (BATCH, SIDE, SIDE, 3)


def float32_batch() -> npt.NDArray[np.float32]:
    """Returns a batch of 38.5 MB."""
    return np.random.default_rng(0).random(SHAPE, np.float32)


def uint8_batch() -> npt.NDArray[np.uint8]:
    """Returns a batch of 9.6 MB."""
    return np.random.default_rng(0).integers(0, 255, SHAPE, np.uint8)


BATCHES = {"float32": float32_batch, "uint8": uint8_batch}
