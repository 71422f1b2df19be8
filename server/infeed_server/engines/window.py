"""The blocks of a reading that may still be asked for."""

from __future__ import annotations

from collections import deque

from infeed_server.engines.base import Request
from infeed_server.engines.blocks import Block, overlap

_STEPS = 3
"""Steps that a window holds where they fit into `_LARGE_BYTES`: one for the ranks that are ahead,
the one they are all at, and one for a rank whose connection broke and that asks again."""

_LARGE_BYTES = 1 << 30


class Window:
    """Consecutive blocks. Not thread-safe."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._largest = 0
        self._blocks: deque[Block] = deque()

    @property
    def oldest(self) -> int | None:
        """The first position; None when there is nothing."""
        return self._blocks[0].start if self._blocks else None

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        self.nbytes += block.nbytes
        self._largest = max(self._largest, block.nbytes)

    def limit(self, share: int, world_size: int) -> int:
        """The bytes at which it is full: its share, or a few steps where that is more."""
        return max(share, min(_STEPS * world_size * self._largest, _LARGE_BYTES))

    def clear(self) -> None:
        """Drops all blocks."""
        self._blocks.clear()
        self.nbytes = 0

    def covering(self, request: Request) -> list[Block]:
        return [block for block in self._blocks if overlap(block, request)]

    def trim(self, keep: int, limit: int) -> None:
        """Drops blocks before the position `keep` until there are fewer bytes than `limit`."""
        while self._blocks and self.nbytes >= limit and self._blocks[0].end <= keep:
            self.nbytes -= self._blocks.popleft().nbytes


__all__ = ["Window"]
