"""Tiles: parts of batches, of a size that divides several batch sizes, which these share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from math import gcd

import numpy as np

from infeed.shared.errors import InfeedError, ServerError
from infeed.shared.spec import Array
from infeed_server.engines.base import Answer, HostBatch, Request

MIN_SLOTS = 8
"""The smallest tile: smaller ones would cost more than is shared."""


def tile_slots(slots: int, sizes: Collection[int]) -> int:
    """Returns the slots of the tiles of a batch, where batches of these sizes are in use."""
    tile = slots
    for size in sorted(sizes, reverse=True):
        if gcd(tile, size) >= min(MIN_SLOTS, slots):
            tile = gcd(tile, size)
    return tile


def split(request: Request, slots: int) -> Iterator[Request]:
    """Yields the requests of the tiles that are not empty; the first one always is there."""
    for offset in range(0, max(1, request.count), slots):
        count = min(slots, request.count - offset)
        yield replace(request, start=request.start + offset, count=count, slots=slots)


class TileJoiner:
    """Makes one batch of its tiles when the last of them is there."""

    def __init__(
        self, request: Request, count: int, on_batch: Callable[[HostBatch | InfeedError], None]
    ) -> None:
        self._request = request
        self._tiles: list[HostBatch | None] = [None] * count
        self._left = count
        self._error: InfeedError | None = None
        self._on_batch = on_batch
        self._lock = threading.Lock()

    def add(self, number: int, tile: Future[Answer]) -> None:
        """Adds a tile that is done."""
        tile.add_done_callback(partial(self._on_tile, number))

    def _on_tile(self, number: int, tile: Future[Answer]) -> None:
        with self._lock:
            self._left -= 1
            try:
                made = tile.result()
                assert isinstance(made, HostBatch)
                self._tiles[number] = made
            except InfeedError as error:
                self._error = self._error or error
            if self._left:
                return
        try:
            batch = self._error or self._join([tile for tile in self._tiles if tile is not None])
        except Exception as error:  # noqa: BLE001 - else the streams would wait
            batch = ServerError(f"the tiles of a batch do not fit together: {error}")
        self._on_batch(batch)

    def _join(self, tiles: list[HostBatch]) -> HostBatch:
        first, empty = tiles[0], self._request.slots - sum(len(tile.mask) for tile in tiles)
        arrays = {
            name: _concatenate([tile.arrays[name] for tile in tiles], empty)
            for name in first.arrays
        }
        ids = np.concatenate([*(tile.sample_ids for tile in tiles), np.full(empty, -1)])
        return HostBatch(self._request.start, first.epoch, arrays, ids, ids >= 0)


def _concatenate(tiles: list[Array], empty: int) -> Array:
    """Returns the tiles one after the other, and empty slots."""
    first = tiles[0]
    shape, value = (empty, *first.shape[1:]), b"" if first.dtype == object else 0
    return np.concatenate([*tiles, np.full(shape, value, first.dtype)] if empty else tiles)
