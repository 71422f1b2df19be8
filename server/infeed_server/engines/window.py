"""The blocks of a reading that may still be asked for."""

from __future__ import annotations

from collections import deque

from infeed_server.engines.base import Request
from infeed_server.engines.blocks import Block, overlap


class Window:
    """Consecutive blocks. Not thread-safe."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.largest = 0
        """Bytes of the largest block there ever was."""
        self._blocks: deque[Block] = deque()

    @property
    def oldest(self) -> int | None:
        """The first position; None when there is nothing."""
        return self._blocks[0].start if self._blocks else None

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        self.nbytes += block.nbytes
        self.largest = max(self.largest, block.nbytes)

    def covering(self, request: Request) -> list[Block]:
        return [block for block in self._blocks if overlap(block, request)]

    def trim(self, keep: int, limit: int) -> None:
        """Drops blocks before the position `keep` until there are fewer bytes than `limit`."""
        while self._blocks and self.nbytes >= limit and self._blocks[0].end <= keep:
            self.nbytes -= self._blocks.popleft().nbytes


__all__ = ["Window"]
