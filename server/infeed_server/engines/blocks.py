"""What a dataset is read in: blocks of consecutive positions, and batches cut from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from infeed.spec import Array, Remainder, Spec
from infeed_server.engines.base import HostBatch, Request


class Kind(NamedTuple):
    """What one reading of a dataset has in common with another of the same blocks; `epochs` 0 is
    endless, and an empty `job_name` no job that others take part in. The last two are for what is
    read from workers."""

    seed: int
    slots: int
    epochs: int
    job_name: str = ""
    remainder: Remainder | None = None


@dataclass(frozen=True)
class Block:
    """Consecutive positions [start, start + length) of one epoch, as arrays.

    `sample_ids` has an int64 for each row, -1 where it is empty.
    """

    start: int
    length: int
    epoch: int
    arrays: dict[str, Array]
    sample_ids: Array

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def nbytes(self) -> int:
        return sum(map(_nbytes, self.arrays.values()))


@dataclass(frozen=True)
class Element:
    """A block that was read, and is still TensorFlow's: to pass it over costs nothing more."""

    start: int
    length: int
    epoch: int
    values: dict[str, Any]
    sample_ids: Array

    @property
    def end(self) -> int:
        return self.start + self.length

    def block(self) -> Block:
        arrays = {name: np.asarray(value) for name, value in self.values.items()}
        return Block(self.start, self.length, self.epoch, arrays, self.sample_ids)


def batch(
    fields: Spec, blocks: Sequence[Block], request: Request, last_epoch: int, *, whole: bool
) -> HostBatch:
    """The rows of the blocks that the request covers; other slots are empty.

    `whole`: a block is one position, and goes as it is. `last_epoch` is that of an empty batch.
    """
    cuts = [slice(None) if whole else _cut(block, request) for block in blocks]
    ids = [block.sample_ids[cut] for block, cut in zip(blocks, cuts, strict=True)]
    arrays = {}
    for field in fields:
        rows = [block.arrays[field.name][cut] for block, cut in zip(blocks, cuts, strict=True)]
        arrays[field.name] = _filled(partial(field.zeros, request.slots), rows, request.slots)
    sample_ids = _filled(lambda: np.full(request.slots, -1, np.int64), ids, request.slots)
    epoch = blocks[0].epoch if blocks else last_epoch
    return HostBatch(request.start, epoch, arrays, sample_ids, sample_ids >= 0)


def overlap(block: Block, request: Request) -> int:
    """Positions of the block that the request covers."""
    begin = max(block.start, request.start)
    return max(0, min(block.end, request.start + request.count) - begin)


def _nbytes(array: Array) -> int:
    """Of an array of byte strings, what the strings take too."""
    strings = sum(map(len, array.flat)) if array.dtype == object else 0
    return array.nbytes + strings


def _cut(block: Block, request: Request) -> slice:
    begin = max(request.start - block.start, 0)
    return slice(begin, begin + overlap(block, request))


def _filled(empty: Callable[[], Array], parts: list[Array], slots: int) -> Array:
    """The parts end to end, then what is empty. One part that fills all slots is not copied."""
    if len(parts) == 1 and len(parts[0]) == slots:
        return parts[0]
    whole = empty()
    end = 0
    for part in parts:
        whole[end : end + len(part)] = part
        end += len(part)
    return whole


__all__ = ["Block", "Element", "Kind", "batch", "overlap"]
