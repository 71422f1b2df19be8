"""The shared reader: one read of a dataset for all ranks of a job, with a window of blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from infeed_server.engines.base import Answer, EndOfData, Request, Trainer
from infeed_server.engines.sequential import errors
from infeed_server.engines.sequential.base import DatasetBackend
from infeed_server.engines.sequential.progress import ProgressLogger
from infeed_server.engines.sequential.ranks import RankTracker
from infeed_server.engines.sequential.window import Block, ReadKey, Window, cut_batch

_MAX_STEP_BYTES = 2 << 30
"""Bytes of a step that are kept to find out whether the data ends inside of it."""

_CONNECT_TIMEOUT_SECONDS = 300.0
"""A bound on waiting for the first connection of all ranks, for a dataset without an order."""

_CHECK_INTERVAL_SECONDS = 0.25

IsWanted = Callable[[], bool]
"""Returns whether a stream still waits for the answer."""


class WrongReaderError(Exception):
    """The reader cannot answer a request: its position was evicted, or the reader is closed."""


class SharedReader:
    """Reads a dataset once. Thread-safe; one caller at a time reads the next block.

    Blocks that a rank may still request stay in the window. When it is full, faster ranks wait for
    the slowest.
    """

    def __init__(
        self,
        dataset: DatasetBackend,
        key: ReadKey,
        ranks: RankTracker,
        window_share: Callable[[], int],
        caller: str = "",
        on_reading: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`window_share` returns the bytes that the window may hold now; three steps always may.
        `caller` is the name that limits on callers count by. `on_reading` is called with 1 before
        a block is read, and with -1 after."""
        self.key = key
        self._ranks = ranks
        self._ordered = dataset.spec.guarantee.order == "deterministic"
        self._dataset = dataset
        self._name = dataset.spec.name
        self._window_share = window_share
        self._on_reading = on_reading
        self._window = Window()
        self._position = 0
        self._end: int | None = None
        self._error: Exception | None = None
        self._closed = False
        self._reading = False
        self._changed = threading.Condition()
        self._blocks = dataset.read(key, caller)

    @property
    def window_bytes(self) -> int:
        """The bytes of the window's blocks."""
        return self._window.nbytes

    @property
    def start(self) -> int:
        """The first position that can be read here."""
        with self._changed:
            return self._start

    @property
    def idle_seconds(self) -> float | None:
        """Seconds since the last stream ended; None while one is open."""
        with self._changed:
            return self._ranks.idle_seconds

    def can_serve(self, trainer: Trainer, start: int, step: int) -> bool:
        """Returns whether a stream that requests this position next can read here.

        `step` is the positions that the trainer's job takes in one step.
        """
        with self._changed:
            ranks = self._ranks
            if self._closed or self._error is not None or start < self._start:
                return False
            if ranks.has_feed(trainer):
                return True
            if not self._ordered:
                # A disconnected rank's positions are kept for its reconnect.
                return start < step and ranks.is_free(trainer) and ranks.all_connected
            # A rank far from the others would wait for them, or make them wait.
            front = max(self._position, ranks.low_watermark() or 0)
            near = start < front + 2 * step
            return ranks.idle_seconds is not None or (near and ranks.is_free(trainer))

    def connect(self, trainer: Trainer, begin: int, step: int) -> None:
        """Adds a stream of the trainer, whose first step begins at position `begin`."""
        with self._changed:
            if self._ranks.idle_seconds is not None and not self._ranks.has_feed(trainer):
                # Another job takes over.
                self._ranks = RankTracker(trainer.world_size, begin, step)
            self._ranks.connect(trainer)

    def disconnect(self, trainer: Trainer) -> None:
        """Removes a stream of the trainer."""
        with self._changed:
            self._ranks.disconnect(trainer)
            self._changed.notify_all()

    def on_sent(self, trainer: Trainer, position: int) -> None:
        """Records that the batch at this position is sent to the trainer."""
        with self._changed:
            self._ranks.on_sent(trainer, position)
            self._changed.notify_all()

    def close(self) -> None:
        """Releases the dataset: at once, or when the block in progress is read."""
        with self._changed:
            self._release()

    def answer(self, request: Request, rank: int, is_wanted: IsWanted) -> Answer | None:
        """Reads up to a request and returns its answer; None where it is no longer wanted.

        Where the data ends inside the request, the remaining slots are zeros, masked.
        Raises `WrongReaderError`, `InvalidRequestError` and the errors of the dataset.
        """
        required = max(request.start + request.count, request.min_position_count)
        target = max(required, request.step_end)
        progress = ProgressLogger(self._name, rank, self._position, target)
        with self._waiting(rank, request.start):
            while True:
                with self._changed:
                    if self._can_answer(request, required, target):
                        covered = self._cover(request)
                        break
                    if not is_wanted():
                        return None
                    if self._reading or self._must_wait(request, progress):
                        self._changed.wait(_CHECK_INTERVAL_SECONDS)
                        continue
                    if self._step_is_too_large(request):
                        world_size = self._ranks.world_size
                        raise errors.step_too_large(self._name, world_size, _MAX_STEP_BYTES)
                    self._reading = True
                progress.log_reading(self._read_block())
        if isinstance(covered, EndOfData):
            return covered
        blocks, position_count = covered
        batch = cut_batch(
            self._dataset.spec.wire_spec,
            blocks,
            request,
            last_epoch=max(self.key.epochs - 1, 0),
            blocks_are_batches=self._dataset.elements_are_batches,
        )
        return replace(batch, position_count=position_count)

    @property
    def _start(self) -> int:
        start = self._window.start
        return self._position if start is None else start

    @property
    def _limit_bytes(self) -> int:
        return self._window.limit_bytes(self._window_share(), self._ranks.world_size)

    @contextmanager
    def _waiting(self, rank: int, position: int) -> Iterator[None]:
        with self._changed:
            self._ranks.on_request(rank, position)
        try:
            yield
        finally:
            with self._changed:
                self._ranks.on_answer(rank)
                self._changed.notify_all()

    def _can_answer(self, request: Request, required: int, target: int) -> bool:
        """Returns whether enough is read: up to `target`, or to `required` if that is too much."""
        if self._has_read(target, request):
            return True
        # The step may be too large to be read for the end of the data.
        return self._position >= required and self._step_is_too_large(request)

    def _cover(self, request: Request) -> EndOfData | tuple[list[Block], int | None]:
        """Returns the blocks of a request, and the end of the data if it is inside of its step."""
        needed = request.min_position_count or (request.start + 1 if request.count else 0)
        if self._end is not None and self._end < needed:
            return EndOfData(self._end)
        ends_in_step = self._end is not None and self._end < request.step_end
        return self._window.covering(request), self._end if ends_in_step else None

    def _release(self) -> None:
        self._closed = True
        if not self._reading:
            self._blocks.close()
        self._changed.notify_all()

    def _has_read(self, target: int, request: Request) -> bool:
        if request.start < self._start:
            raise WrongReaderError
        all_ranks = self._ordered or not self._ranks.missing
        if all_ranks and (self._end is not None or self._position >= target):
            return True
        if self._error is not None:
            raise errors.repeated(self._error)
        if self._closed:
            raise WrongReaderError
        return False

    def _must_wait(self, request: Request, progress: ProgressLogger) -> bool:
        """Returns whether other ranks must connect, or catch up, before the next block is read."""
        if not self._ordered and self._ranks.missing:
            self._check_ranks_connect()
            progress.log_waiting(
                self._ranks, "it has no order, so all ranks must connect before any is served"
            )
            return True
        self._evict(request.start)
        low = self._ranks.low_watermark()
        behind = low is not None and low < request.start
        if behind and self._window.nbytes >= self._limit_bytes:
            progress.log_waiting(self._ranks, "the window is full")
            return True
        return False

    def _check_ranks_connect(self) -> None:
        """Raises an error where not all ranks can connect any more."""
        if not self._ranks.all_connected:
            # The disconnected rank might not return. Nothing is read yet, so the others can use
            # another reader.
            self._release()
            raise WrongReaderError
        if self._ranks.age_seconds >= _CONNECT_TIMEOUT_SECONDS:
            self._error = errors.missing_ranks(
                self._name, self._ranks.world_size, self._ranks.missing, _CONNECT_TIMEOUT_SECONDS
            )
            raise errors.repeated(self._error)

    def _step_is_too_large(self, request: Request) -> bool:
        """Returns whether no more of the request's step can be kept."""
        full = self._window.nbytes >= max(_MAX_STEP_BYTES, self._limit_bytes)
        return full and self._position >= request.start

    def _evict(self, start: int) -> None:
        """Evicts the oldest blocks where the window is full.

        The previous step is kept too, unless the request at `start` is itself the slowest.
        """
        low = min(self._ranks.low_watermark() or 0, start)
        keep = low - (self._ranks.step if low < start else 0)
        self._window.evict_before(keep, self._limit_bytes)

    def _read_block(self) -> int:
        """Reads one block, without the lock, so that other ranks can use the window.

        Returns the position that is reached.
        """
        block, failure = None, None
        self._on_reading(1)
        try:
            block = next(self._blocks, None)
            if block is not None and block.start == 0:
                self._dataset.check_first_block(self.key, block.to_numpy())
        except Exception as error:  # noqa: BLE001 - raised below, with the lock
            failure = error
        finally:
            self._on_reading(-1)
        with self._changed:
            self._reading = False
            self._changed.notify_all()
            if self._closed:
                self._blocks.close()
            if failure is not None:
                # The generator is exhausted now; later callers must not mistake that for the end.
                self._error = failure
                raise errors.repeated(failure)
            if block is None:
                self._end = self._position
            else:
                self._append(block)
            return self._position

    def _append(self, block: Block) -> None:
        self._position = block.end
        low = self._ranks.low_watermark()
        if low is not None and block.end <= low:
            # Skipped on the way to the ranks. Earlier blocks go too: a rank that requested them
            # would otherwise take the gap behind them for empty slots.
            self._window.clear()
            return
        self._window.append(block.to_numpy())
