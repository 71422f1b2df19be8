"""DATA frames around memory that stays where it lies."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from infeed_server.http2.wire import Piece

_HEAD = struct.Struct(">BHBBI")
_DATA = 0


class Pieces:
    """Pieces of memory, taken from the front."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._views = [memoryview(piece) for piece in reversed(pieces) if len(piece)]
        self.size = sum(map(len, self._views))

    def take(self, count: int) -> Iterator[memoryview]:
        self.size -= count
        while count:
            view = self._views.pop()
            if len(view) > count:
                self._views.append(view[count:])
                view = view[:count]
            count -= len(view)
            yield view


def data(stream: int, pieces: Pieces, count: int, frame_bytes: int) -> Iterator[Piece]:
    """The next `count` bytes, in frames of at most so many; none of them ends the stream."""
    while count:
        size = min(count, frame_bytes)
        yield _HEAD.pack(size >> 16, size & 0xFFFF, _DATA, 0, stream)
        yield from pieces.take(size)
        count -= size
