"""Blocks of consecutive positions, a reader's window of them, and the batches cut from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from infeed.shared.errors import SourceError
from infeed.shared.spec import Array, PipelineSpec, Remainder, Spec, numpy_dtype
from infeed_server.engines.base import HostBatch, Request
from infeed_server.sources.base import array_bytes

_RETAINED_STEPS = 3
"""Steps that a window may always hold if they fit into `_MAX_RETAINED_BYTES`: one for the faster
ranks, the current one, and one for a rank that reconnects and repeats its requests."""

_MAX_RETAINED_BYTES = 1 << 30
"""Limit on the bytes of `_RETAINED_STEPS`; beyond it only the window's share of memory counts."""


_Shapes = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Data type and shape of each array by name."""


class ReadKey(NamedTuple):
    """The parameters of a read; reads with equal keys give the same blocks. With `epochs` 0, a read
    repeats its data endlessly. An empty `job_name` means a job of its own."""

    seed: int
    slots: int
    epochs: int
    remainder: Remainder = "drop"
    job_name: str = ""


@dataclass(frozen=True)
class Block:
    """The positions [start, start + length) of one epoch. `arrays` are TensorFlow's until
    `to_numpy`, so a skipped block is not converted. `sample_ids` has an int64 for each row, -1 for
    an empty one."""

    start: int
    length: int
    epoch: int
    arrays: dict[str, Any]
    sample_ids: Array

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def nbytes(self) -> int:
        return sum(map(array_bytes, self.arrays.values()))

    def checked(self, pipeline: str, fields: Spec, position: int) -> Block:
        """Returns the block with NumPy arrays. Raises `SourceError` unless it begins at the
        position and has the fields of the spec. A block of one position may have any number of
        rows."""
        block = self.to_numpy()
        if block.start != position:
            raise SourceError(
                f"the engine of {pipeline!r} read a block that begins at position {block.start}, "
                f"not {position}"
            )
        ids = np.asarray(block.sample_ids)
        rows = len(ids) if block.length == 1 else block.length
        given = {name: (x.dtype, x.shape) for name, x in block.arrays.items()}
        given["sample_ids"] = ids.dtype, ids.shape
        wanted = {
            field.name: (numpy_dtype(field.data_type), (rows, *field.shape)) for field in fields
        }
        wanted["sample_ids"] = np.dtype(np.int64), (rows,)
        if given != wanted:
            raise SourceError(
                f"the engine of {pipeline!r} read a block with {_listed(given, wanted)}; its spec "
                f"has {_listed(wanted, given)}"
            )
        return block

    def to_numpy(self) -> Block:
        return replace(self, arrays={name: np.asarray(x) for name, x in self.arrays.items()})


class DatasetBackend(Protocol):
    """A dataset that can be read from its beginning, any number of times and concurrently."""

    @property
    def spec(self) -> PipelineSpec:
        """The spec of the pipeline."""

    def read(self, key: ReadKey) -> Generator[Block, None, None]:
        """Yields the elements of one read and may block for each; closing the generator releases
        everything. Raises `InfeedError`."""


class Window:
    """Consecutive blocks that ranks may still request. Not thread-safe."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._max_block_bytes = 0
        self._blocks: deque[Block] = deque()

    @property
    def start(self) -> int | None:
        """The first position; None if the window is empty."""
        return self._blocks[0].start if self._blocks else None

    def append(self, block: Block) -> None:
        self._blocks.append(block)
        self.nbytes += block.nbytes
        self._max_block_bytes = max(self._max_block_bytes, block.nbytes)

    def limit_bytes(self, share: int, world_size: int) -> int:
        """Returns the bytes at which it is full: its share, or a few steps if they take more."""
        steps = _RETAINED_STEPS * world_size * self._max_block_bytes
        return max(share, min(steps, _MAX_RETAINED_BYTES))

    def clear(self) -> None:
        self._blocks.clear()
        self.nbytes = 0

    def covering(self, request: Request) -> list[Block]:
        """Returns the blocks that overlap the request."""
        return [block for block in self._blocks if _overlap(block, request)]

    def evict_before(self, position: int, limit: int) -> None:
        """Evicts the oldest blocks before the position until fewer bytes than `limit` are left."""
        while self._blocks and self.nbytes >= limit and self._blocks[0].end <= position:
            self.nbytes -= self._blocks.popleft().nbytes


def cut_batch(
    fields: Spec,
    blocks: Sequence[Block],
    request: Request,
    *,
    last_epoch: int,
    position_count: int | None,
) -> HostBatch:
    """Cuts the rows of a request from its blocks; the remaining slots are empty. A block of one
    position, whose rows are a user's batch, is used whole. An empty batch has the epoch
    `last_epoch`; every batch has `position_count`."""
    cuts = [slice(None) if block.length == 1 else _rows(block, request) for block in blocks]
    ids = [block.sample_ids[cut] for block, cut in zip(blocks, cuts, strict=True)]
    arrays = {}
    for field in fields:
        rows = [block.arrays[field.name][cut] for block, cut in zip(blocks, cuts, strict=True)]
        arrays[field.name] = _concatenate(rows, request.slots, partial(field.zeros, request.slots))
    sample_ids = _concatenate(ids, request.slots, lambda: np.full(request.slots, -1, np.int64))
    epoch = blocks[0].epoch if blocks else last_epoch
    return HostBatch(request.start, epoch, arrays, sample_ids, sample_ids >= 0, position_count)


def _listed(shapes: _Shapes, other: _Shapes) -> str:
    """Returns a text of the arrays that `other` lacks."""
    differing = [
        f"{name}: {data_type}{list(shape)}"
        for name, (data_type, shape) in shapes.items()
        if other.get(name) != (data_type, shape)
    ]
    return ", ".join(differing) or "no other field"


def _overlap(block: Block, request: Request) -> int:
    """Counts the positions of the block that the request covers."""
    begin = max(block.start, request.start)
    return max(0, min(block.end, request.start + request.count) - begin)


def _rows(block: Block, request: Request) -> slice:
    begin = max(request.start - block.start, 0)
    return slice(begin, begin + _overlap(block, request))


def _concatenate(parts: list[Array], slots: int, make_empty: Callable[[], Array]) -> Array:
    """Concatenates the parts, padded to `slots`. Returns a single full part without a copy."""
    if len(parts) == 1 and len(parts[0]) == slots:
        return parts[0]
    result = make_empty()
    end = 0
    for part in parts:
        result[end : end + len(part)] = part
        end += len(part)
    return result
