"""The shared reader: one read of a dataset for all ranks of a job, with a window of blocks."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Generator

from infeed.shared.errors import InfeedError, ServerError
from infeed_server.config.user_errors import user_errors
from infeed_server.engines.base import Request, Trainer
from infeed_server.engines.tf_data import start_thread
from infeed_service.sequential.ranks import (
    DISCONNECT_TIMEOUT_SECONDS,
    RankStream,
    RankTracker,
)
from infeed_service.sequential.reader_errors import missing_ranks, no_repetition, step_too_large
from infeed_service.sequential.window import Block, DatasetBackend, ReadKey, Window

_MAX_STEP_BYTES = 2 << 30
"""Bytes of a step that are kept to find out whether the data ends within it."""

_CONNECT_TIMEOUT_SECONDS = 300.0
"""Wait for all ranks to connect to a dataset without an order."""

_CHECK_INTERVAL_SECONDS = 0.25
"""Period of the checks whether a rank has left."""


class WrongReaderError(Exception):
    """A reader cannot answer a request: the position was evicted, or the reader is closed."""


class SharedReader:
    """Reads a dataset once, on its own thread, as far as its streams request. Blocks that a rank
    may still request stay in the window. While it is full, faster ranks wait for the slowest. The
    engine's condition `changed` guards everything: callers of the methods must hold it, but a block
    is read without it."""

    def __init__(
        self,
        dataset: DatasetBackend,
        key: ReadKey,
        ranks: RankTracker,
        window_share: Callable[[], int],
        changed: threading.Condition,
        on_progress: Callable[[SharedReader], None],
    ) -> None:
        """`window_share` returns the bytes that the window may hold now; it may always hold three
        steps. `on_progress` is called without `changed` after each block and at the end."""
        self.key = key
        self.ranks = ranks
        self.position = 0
        self.is_reading = False
        self.error: InfeedError | None = None
        self.window = Window()
        self._ordered = dataset.spec.guarantee.order == "deterministic"
        self._dataset = dataset
        self._name, self._fields = dataset.spec.name, dataset.spec.wire_spec
        self._window_share = window_share
        self._changed = changed
        self._on_progress = on_progress
        self._streams: list[RankStream] = []
        self._end: int | None = None
        self._closed = False

    def start_reading(self) -> None:
        blocks = self._dataset.read(self.key)
        start_thread(f"infeed-dataset-{self._name}", self._run, blocks)

    @property
    def start(self) -> int:
        """The first position that can be read here."""
        start = self.window.start
        return self.position if start is None else start

    @property
    def has_ended(self) -> bool:
        """Whether it reads no further block, after an error or `close`."""
        return self._closed or self.error is not None

    def can_serve(self, trainer: Trainer, start: int, step: int) -> bool:
        """Returns whether a stream that requests this position next can read here. `step` is the
        number of positions that the trainer's job takes in a step."""
        ranks = self.ranks
        if self.has_ended or start < self.start:
            return False
        if ranks.has_feed(trainer):
            return True
        if not self._ordered:
            # A disconnected rank's positions are kept for its reconnect.
            return start < step and ranks.is_free(trainer) and ranks.all_connected
        # A rank far from the others would wait for them, or make them wait.
        near = start < max(self.position, ranks.low_watermark() or 0) + 2 * step
        return ranks.idle_seconds is not None or (near and ranks.is_free(trainer))

    def connect(self, trainer: Trainer, begin: int, step: int) -> RankStream:
        """Adds a stream of the trainer, whose first step begins at position `begin`."""
        if self.ranks.idle_seconds is not None and not self.ranks.has_feed(trainer):
            self.ranks = RankTracker(trainer.world_size, begin, step)  # another job takes over
        stream = self.ranks.connect(trainer)
        self._streams.append(stream)
        return stream

    def disconnect(self, stream: RankStream) -> None:
        self._streams.remove(stream)
        self.ranks.disconnect(stream)

    def close(self) -> None:
        """Releases the dataset now, or once the block in progress is read."""
        self._closed = True
        self._changed.notify_all()

    def has_read(self, request: Request) -> bool:
        """Returns whether the window has the data for the answer to a request. Raises
        `WrongReaderError`, and the error that ended the read."""
        if request.start < self.start:
            raise WrongReaderError
        required, target = _required(request), _target(request)
        is_read = self._end is not None or self.position >= target
        # A step too large to read to its end is answered without knowing whether the data ends.
        is_read = is_read or (self.position >= required and self._is_full(request))
        if is_read and (self._ordered or not self.ranks.missing):
            return True
        if self.error is not None:
            # A copy, as the traceback of one error raised repeatedly by several threads would grow.
            error = copy.copy(self.error)
            error.__cause__ = self.error
            raise error
        if self._closed:
            raise WrongReaderError
        return False

    def end_before(self, position: int) -> int | None:
        """Returns the end of the data, if it is known and before the position."""
        return self._end if self._end is not None and self._end < position else None

    def _run(self, blocks: Generator[Block, None, None]) -> None:
        with contextlib.closing(blocks):
            while self._wait_for_request():
                self._read_block(blocks)
                self._on_progress(self)
            self._on_progress(self)

    def _wait_for_request(self) -> bool:
        """Waits until a request needs the next block. Returns False once the reader has ended."""
        with self._changed:
            while not self.has_ended:
                waiting = [
                    (stream.request.start, number)
                    for number, stream in enumerate(self._streams)
                    if stream.request is not None
                ]
                if waiting and not self._must_wait(self._streams[min(waiting)[1]]):
                    self.is_reading = True
                    return True
                if (self.ranks.idle_seconds or 0.0) >= DISCONNECT_TIMEOUT_SECONDS:
                    self._closed = True
                elif not self.has_ended:
                    self._changed.wait(_CHECK_INTERVAL_SECONDS)
            return False

    def _must_wait(self, stream: RankStream) -> bool:
        """Returns whether other ranks must connect or catch up before the next block is read."""
        request, ranks = stream.request, self.ranks
        assert request is not None
        if not self._ordered and ranks.missing:
            self._check_ranks_connect()
        else:
            low = ranks.low_watermark()
            keep = min(low or 0, request.start)
            if keep < request.start:  # keeps the previous step too, for a slower rank
                keep -= ranks.step
            self.window.evict_before(keep, self._limit_bytes)
            if low is None or low >= request.start or self.window.nbytes < self._limit_bytes:
                if self._is_full(request):
                    self.error = step_too_large(self._name, ranks.world_size, _MAX_STEP_BYTES)
                return self.error is not None
        return True

    def _check_ranks_connect(self) -> None:
        """Ends the read if not all ranks can connect any more."""
        if not self.ranks.all_connected:
            # The disconnected rank might not return. As nothing is read yet, the others can use
            # another reader.
            self._closed = True
        elif self.ranks.age_seconds >= _CONNECT_TIMEOUT_SECONDS:
            self.error = missing_ranks(self._name, self.ranks, _CONNECT_TIMEOUT_SECONDS)

    @property
    def _limit_bytes(self) -> int:
        return self.window.limit_bytes(self._window_share(), self.ranks.world_size)

    def _is_full(self, request: Request) -> bool:
        """Returns whether no more of the request's step can be kept."""
        full = self.window.nbytes >= max(_MAX_STEP_BYTES, self._limit_bytes)
        return full and self.position >= request.start

    def _read_block(self, blocks: Generator[Block, None, None]) -> None:
        """Reads one block without the lock, so that other ranks can use the window."""
        block, error = None, None
        try:
            with user_errors(f"the engine of {self._name!r}", InfeedError):
                block = next(blocks, None)
        except InfeedError as raised:
            error = raised
        with self._changed:
            self.is_reading = False
            try:
                if block is not None and error is None:
                    self._append(block)
                elif error is None and self.key.epochs:
                    self._end = self.position
                elif error is None:
                    error = no_repetition(self._name, self.position)
            except InfeedError as raised:
                error = raised
            except Exception as raised:  # noqa: BLE001 - without this thread, streams would hang
                error = ServerError(str(raised))
                error.__cause__ = raised
            self.error = error

    def _append(self, block: Block) -> None:
        low = self.ranks.low_watermark()
        if low is not None and block.end <= low:
            # The block is skipped on the way to the ranks. Earlier ones go too, or a rank that
            # requests them would take the gap after them for empty slots.
            self.window.clear()
        else:
            self.window.append(block.checked(self._name, self._fields, self.position))
        self.position = block.end  # last, when the window has every earlier block it will have


def _required(request: Request) -> int:
    """Returns the position up to which the data must be read for an answer."""
    return max(request.start + request.count, request.min_position_count)


def _target(request: Request) -> int:
    """Returns the position up to which the data is read, to find its end."""
    return max(_required(request), request.step_end)
