"""A server's end of shared memory, in the process of the test."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from infeed.wire.shared_memory import BlockPool

SIZE = 1 << 18
"""Bytes of a block."""


class SharingServer:
    """Two blocks, and the trainer's pool of them."""

    def __init__(self) -> None:
        files = [os.memfd_create("infeed-test", os.MFD_CLOEXEC) for _ in range(2)]
        for file in files:
            os.ftruncate(file, SIZE)
        self.memory = [np.frombuffer(mmap.mmap(file, SIZE), np.uint8) for file in files]
        self.pool = BlockPool(files, SIZE)
        for file in files:
            os.close(file)

    def send(self, number: int, value: int) -> Any:
        """Writes a batch into a block, and returns the trainer's array of it."""
        self.memory[number - 1][:] = value
        return self.pool.lend(number, SIZE)
