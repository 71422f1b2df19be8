"""One server's part in a feed: asks it for what the pool wants, and puts together what it sends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from infeed.assembly import Asked, Assembler, EndOfData, Received
from infeed.buffers import Buffers
from infeed.call import Call
from infeed.errors import (
    AuthenticationError,
    FingerprintError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.handoff import HandoffClosedError
from infeed.job import Job
from infeed.pool import Pool
from infeed.transport import FIRST_PAUSE, LONGEST_PAUSE, Transport
from infeed.v1 import stream_pb2

_UNSUITABLE = (
    AuthenticationError,
    FingerprintError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
)
"""What says more about a server than about the feed: another one may do."""

_LEFT_OUT_SECONDS = 10.0
"""After which a server that was left out is tried again: it may have been redeployed."""


class Supplier:
    """Keeps a stream open to one server for as long as the pool wants it. Has a thread of its own.

    plan → pool → requests → (server) → messages → assembler → pool
    """

    def __init__(
        self, server: str, transport: Transport, job: Job, pool: Pool, buffers: Buffers
    ) -> None:
        self.server = server
        self._transport = transport
        self._job = job
        self._pool = pool
        self._buffers = buffers
        self._call: Call | None = None
        self._stopping = threading.Event()
        self._was_open = False
        self._thread = threading.Thread(target=self._run, name="infeed-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tells it to end, from any thread, without waiting for it."""
        self._stopping.set()
        if self._call is not None:
            self._call.cancel()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set() and self._pool.enter(self.server):
            rest = pause
            try:
                self._read_stream()
            except HandoffClosedError:
                return
            except ServerUnavailableError as error:
                self._pool.lost(self.server, error)
            except _UNSUITABLE as error:
                self._pool.leave_out(self.server, error)
                rest = _LEFT_OUT_SECONDS
            except BaseException as error:  # noqa: BLE001 - the trainer's thread is to see it
                # Behind the batches before the one that the server could not make.
                self._pool.failed(self.server, error)
                return
            self._pool.rest(rest)
            pause = FIRST_PAUSE if self._was_open else min(2 * pause, LONGEST_PAUSE)

    def _read_stream(self) -> None:
        """Reads one stream to its end. Raises what ends it badly."""
        over = threading.Event()
        asked: deque[Asked] = deque()
        self._was_open = False
        call = self._transport.open_stream(self.server, self._requests(asked, over), self._drain)
        self._call = call
        if self._stopping.is_set():
            call.cancel()  # stop() may have come before there was a call to cancel
        try:
            self._read_messages(call, asked)
        finally:
            self._pool.end(over)
            call.close()
        if not self._pool.over:
            raise ServerUnavailableError(f"{call.server} ended the stream")

    def _read_messages(self, call: Call, asked: deque[Asked]) -> None:
        assembler = Assembler(self._job.expected, _due(asked), self._buffers)
        while (size := call.next()) is not None:
            try:
                done = assembler.take(size, call.read_into)
            except ProtocolError as error:
                told = f"{call.server} broke the protocol: {error.message}"
                raise ProtocolError(told, server=call.server) from error
            if assembler.opened and not self._was_open:
                self._was_open = True
                self._pool.opened(self.server)
            if isinstance(done, EndOfData):
                self._ended(done)
            elif done is not None:
                self._check_last(done)
                self._pool.arrived(self.server, done.step, done)
            del done  # or the last batch would be held while the next is awaited
            if self._pool.over:
                return

    def _ended(self, end: EndOfData) -> None:
        needs = self._job.plan.needs(end.step)
        if not self._job.end_unknown or not 0 <= end.position_count < needs:
            raise ProtocolError(
                f"the server answers a request that needs {needs} positions with the end of the "
                f"data at position {end.position_count}, where there can be none"
            )
        self._pool.ends_at(end.step, end.position_count)

    def _check_last(self, done: Received) -> None:
        count, plan = done.position_count, self._job.plan
        if count is None:
            return
        needs, end = plan.needs(done.step), plan.end(done.step)
        if not self._job.step_end_asked or not needs <= count < end:
            raise ProtocolError(
                f"the server says that the data ends at position {count} with a batch of the step "
                f"from {needs} to {end}, where it cannot"
            )

    def _drain(self) -> None:
        self._pool.drain(self.server)

    def _requests(
        self, asked: deque[Asked], over: threading.Event
    ) -> Iterator[stream_pb2.StreamBatchesRequest]:
        """What one stream is asked, and noted in `asked`; runs in the transport's thread."""
        self._pool.connected(self.server, over)
        yield stream_pb2.StreamBatchesRequest(open=self._job.open)
        while (step := self._pool.ask(self.server, over)) is not None:
            start, count = self._job.plan.at(step)
            asked.append(Asked(step, start))
            batch = stream_pb2.BatchRequest(request_id=step, start=start, count=count)
            if self._job.end_unknown:
                batch.min_position_count = self._job.plan.needs(step)
            if self._job.step_end_asked:
                batch.step_end = self._job.plan.end(step)
            yield stream_pb2.StreamBatchesRequest(batch=batch)


def _due(asked: deque[Asked]) -> Iterator[Asked]:
    """What a stream was asked, in order; it ends where the server answers what it was not."""
    while asked:
        yield asked.popleft()


__all__ = ["Supplier"]
