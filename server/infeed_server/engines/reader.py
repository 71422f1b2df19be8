"""One front-to-back reading of a dataset, with a window of what was read last."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import numpy as np

from infeed.errors import SourceError
from infeed.spec import Array
from infeed_server.engines.base import Answer, End, HostBatch, Request
from infeed_server.engines.iteration import Iteration
from infeed_server.pipeline.sequential import SequentialPlan

_WINDOW_BYTES = 128 << 20
"""What a window may hold beyond the block that is being read."""

_MIN_BLOCKS = 16
"""Blocks that a window holds whatever their size: ranks are that many steps apart at most
before one of them has to read anew."""


Wanted = Callable[[], bool]
"""Whether somebody still waits for an answer."""


class LeftWindowError(Exception):
    """The request begins before the window: another reader is needed."""


@dataclass(frozen=True)
class Block:
    """Consecutive positions [start, start + length) of one epoch, as arrays.

    `sample_ids` count the samples of the epoch, int64 for each row.
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
        return sum(array.nbytes for array in self.arrays.values())


class DatasetReader:
    """Reads a dataset epoch after epoch. Thread-safe; one caller reads on at a time."""

    def __init__(self, plan: SequentialPlan, seed: int, slots: int, epochs: int) -> None:
        self.seed = seed
        self.slots = slots
        self.epochs = epochs
        self._plan = plan
        self._window: deque[Block] = deque()
        self._end: int | None = None
        self._broken: Exception | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._blocks = _read(plan, seed, slots, epochs)

    @property
    def oldest(self) -> int:
        """The first position that is still in the window."""
        return self._window[0].start if self._window else 0

    def reaches(self, position: int) -> bool:
        """Whether the position is in the window or still to come."""
        return position >= self.oldest

    def close(self) -> None:
        """Lets go of the dataset: at once, or when the answer that is being made is made."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._blocks.close()
            finally:
                self._lock.release()

    def answer(self, request: Request, wanted: Wanted) -> Answer | None:
        """The batch, or the end when the request lies at or behind it; None as soon as nobody
        wants it any more.

        Where the data ends inside the request, the slots that are left are zeros, masked: whether
        such a batch is dropped is the trainer's choice, as it is for data of known length.
        Raises `LeftWindowError`, and what the dataset raises.
        """
        with self._lock:
            try:
                if self._closed or not self.reaches(request.start):
                    raise LeftWindowError
                if not self._read_up_to(request, wanted):
                    return None
                blocks = [block for block in self._window if _overlap(block, request)]
                end = self._end
            finally:
                if self._closed:
                    self._blocks.close()
        have = sum(_overlap(block, request) for block in blocks)
        if end is not None and have == 0 < request.count:
            return End(end)
        return self._batch(request, blocks)

    def _read_up_to(self, request: Request, wanted: Wanted) -> bool:
        """False when it gave up, nobody wanting the batch any more; it can be a long way."""
        while self._end is None and self._position < request.start + request.count:
            if not wanted():
                return False
            if self._broken is not None:
                raise self._broken
            try:
                block = next(self._blocks, None)
            except Exception as error:
                # The iteration is over now; who comes next must not take that for the end.
                self._broken = error
                raise
            if block is None:
                self._end = self._position
            else:
                self._window.append(block)
                self._trim(request.start)
        return True

    @property
    def _position(self) -> int:
        return self._window[-1].end if self._window else 0

    def _trim(self, wanted: int) -> None:
        """Drops the oldest blocks, but none from the position `wanted` on: where epochs are
        shorter than a batch, one batch takes many blocks."""
        size = sum(block.nbytes for block in self._window)
        while (
            len(self._window) > _MIN_BLOCKS
            and size > _WINDOW_BYTES
            and self._window[0].end <= wanted
        ):
            size -= self._window.popleft().nbytes

    def _batch(self, request: Request, blocks: list[Block]) -> HostBatch:
        """The rows of the blocks that the request covers; other slots are empty."""
        cuts = [slice(None) if self._plan.batched else _cut(block, request) for block in blocks]
        ids = [block.sample_ids[cut] for block, cut in zip(blocks, cuts, strict=True)]
        arrays = {}
        for field in self._plan.spec.wire_spec:
            rows = [block.arrays[field.name][cut] for block, cut in zip(blocks, cuts, strict=True)]
            arrays[field.name] = _filled(partial(field.zeros, self.slots), rows, self.slots)
        sample_ids = _filled(lambda: np.full(self.slots, -1, np.int64), ids, self.slots)
        epoch = blocks[0].epoch if blocks else max(self.epochs - 1, 0)
        return HostBatch(request.start, epoch, arrays, sample_ids, sample_ids >= 0)


# No method of the reader: a reader that nobody uses any more shall go at once, with its window,
# which a generator that holds it would prevent.
def _read(plan: SequentialPlan, seed: int, slots: int, epochs: int) -> Generator[Block, None, None]:
    position = epoch = 0
    dataset = plan.dataset(seed, slots)
    while not epochs or epoch < epochs:
        seen = 0
        with contextlib.closing(Iteration(dataset)) as elements:
            for number, element in enumerate(elements):
                arrays = {name: np.asarray(value) for name, value in element.items()}
                rows = _rows(plan, arrays, slots, f"element {number} of epoch {epoch}")
                length = 1 if plan.batched else rows
                yield Block(position, length, epoch, arrays, seen + np.arange(rows))
                position += length
                seen += rows
        if not seen:
            raise plan.empty()
        epoch += 1


def _rows(plan: SequentialPlan, arrays: dict[str, Array], slots: int, where: str) -> int:
    """The rows of an element. Raises `SourceError` where they do not fit the slots."""
    counts = {name: len(array) for name, array in arrays.items()}
    rows = next(iter(counts.values()))
    if rows <= slots and set(counts.values()) == {rows}:
        return rows
    told = ", ".join(f"{name!r} has {count} rows" for name, count in counts.items())
    raise SourceError(
        f"the dataset of {plan.source.label}: {where} is no batch of {slots} samples or fewer: "
        f"{told}",
        pipeline=plan.spec.name,
    )


def _overlap(block: Block, request: Request) -> int:
    begin = max(block.start, request.start)
    return max(0, min(block.end, request.start + request.count) - begin)


def _cut(block: Block, request: Request) -> slice:
    begin = max(request.start - block.start, 0)
    return slice(begin, begin + _overlap(block, request))


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
