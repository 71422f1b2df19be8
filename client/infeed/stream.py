"""The prefetching reader: batches in order, whatever happens to the connection.

A reader thread keeps requests under way and puts the answers together; where there are finish
transforms, a second thread runs them while the first one reads on. Batch n of the feed is request
n, so what is owed after a loss is simply every request from the first unanswered one.

    plan → window → requests → (server) → messages → assembler → [finisher] → next()
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from infeed.assembly import Asked, Assembler, EndOfData, Received
from infeed.buffers import Buffers
from infeed.call import Call
from infeed.errors import FeedClosedError, ProtocolError, ServerUnavailableError, StallError
from infeed.finish import finish
from infeed.handoff import Handoff, HandoffClosedError
from infeed.job import Job
from infeed.transport import FIRST_PAUSE, LONGEST_PAUSE, Transport
from infeed.v1 import stream_pb2
from infeed.window import Window

JOIN_SECONDS = 2.0
"""How long `close` waits for the threads. They are daemons, so none outlives the process."""

_FINISHED_BATCHES = 2


class _End:
    """Stands in the queue behind the last batch."""


_Item = Received | BaseException | _End


class BatchStream:
    """The batches of a job, one after the other. Starts its threads at once."""

    def __init__(self, transport: Transport, job: Job) -> None:
        self._transport = transport
        self._job = job
        self._window = Window(job.prefetch_bytes, job.expected.payload_bytes)
        self._buffers = Buffers()
        self._received: Handoff[_Item] = Handoff()  # bounded by the window
        self._ready = self._received
        self._steps_received = 0
        self._final: BaseException | _End | None = None
        self._call: Call | None = None
        self._stopping = threading.Event()
        self._pid = os.getpid()
        self._trouble = ""
        self.reconnects = 0
        self.servers: list[str] = []
        self.position_count = job.plan.total
        threads = [threading.Thread(target=self._read, name="infeed-reader", daemon=True)]
        if job.transforms:
            self._ready = Handoff(_FINISHED_BATCHES)
            finisher = threading.Thread(target=self._finish, name="infeed-finisher", daemon=True)
            threads.append(finisher)
        self._threads = threads
        for thread in threads:
            thread.start()

    def next(self, timeout: float | None = None) -> Received | None:
        """The next batch; None behind the last.

        Raises `StallError` after `timeout` seconds (the stream goes on), what ended the stream,
        and `FeedClosedError`.
        """
        if self._final is None:
            try:
                item = self._ready.get(timeout)
            except TimeoutError:
                raise StallError(
                    f"no batch within {timeout:g} s; {self._trouble or 'the server is silent'}",
                    seconds=timeout,
                ) from None
            except HandoffClosedError:
                raise FeedClosedError("the feed was closed") from None
            if isinstance(item, Received):
                self._window.took()
                return item
            self._final = item
        if isinstance(self._final, _End):
            return None
        raise self._final

    def stop(self) -> None:
        """Tells the threads to end, from any thread, without waiting for them."""
        if os.getpid() != self._pid:
            return  # the threads stayed in the process that this one was forked from
        self._stopping.set()
        self._window.close()
        self._received.close()
        self._ready.close()
        self._buffers.close()
        if self._call is not None:
            self._call.cancel()

    def close(self) -> None:
        """Ends the threads and waits for them, no longer than two seconds. Idempotent."""
        self.stop()
        deadline = time.monotonic() + JOIN_SECONDS
        threads, self._threads = self._threads, []  # nobody waits twice for a stuck one
        for thread in threads:
            if os.getpid() == self._pid and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _read(self) -> None:
        with contextlib.suppress(HandoffClosedError):
            try:
                self._read_streams()
                self._received.put(_End())
            except HandoffClosedError:
                raise
            except BaseException as error:  # noqa: BLE001 - the trainer's thread is to see it
                self._received.put(error)

    def _read_streams(self) -> None:
        """Reads to the end over as many streams as it takes."""
        pause = FIRST_PAUSE
        give_up = 0.0
        while not self._complete():
            before = self._steps_received
            try:
                self._read_stream()
                return
            except ServerUnavailableError as error:
                if self._complete():
                    return
                now = time.monotonic()
                if not give_up or self._steps_received > before:
                    pause, give_up = FIRST_PAUSE, now + self._job.reconnect_timeout
                if now >= give_up:
                    raise self._gone(error) from error
                self._trouble = f"reconnecting after: {error.message}"
                if self._stopping.wait(min(pause, give_up - now)):
                    raise HandoffClosedError from None
                pause = min(2 * pause, LONGEST_PAUSE)

    def _read_stream(self) -> None:
        """Reads one stream. Returns at the end of the data, raises when the stream breaks off."""
        first = self._steps_received
        over = threading.Event()
        call = self._transport.open_stream(self._requests(first, over))
        self._call = call
        if self._stopping.is_set():
            call.cancel()  # stop() may have come before there was a call to cancel
        try:
            if self._read_messages(call, first):
                return
        finally:
            self._window.end(over)
            call.close()
        if not self._complete():
            raise ServerUnavailableError(
                f"{call.server} ended the stream at step {self._steps_received}, "
                "before all that it owed"
            )

    def _read_messages(self, call: Call, first: int) -> bool:
        """Reads what a call brings; True when the data ended, False when the call did."""
        assembler = Assembler(self._job.expected, self._asked(first), self._buffers)
        while (size := call.next()) is not None:
            was_open = assembler.opened
            try:
                done = assembler.take(size, call.read_into)
            except ProtocolError as error:
                told = f"{call.server} broke the protocol: {error.message}"
                raise ProtocolError(told, server=call.server) from error
            if assembler.opened and not was_open:
                self._opened(call.server)
            if isinstance(done, EndOfData):
                self._ended(done)
                return True
            if done is not None and not self._accept(done):
                return True
        return False

    def _accept(self, received: Received) -> bool:
        """Hands a batch on; False when it turns out that the data ended before it."""
        plan = self._job.plan
        if plan.total is None and plan.remainder == "drop" and received.batch.sample_ids[-1] < 0:
            # Only now is it known that the data set does not fill this batch. Where it fills
            # those of lower ranks, they end one step later.
            return False
        self._window.saw(received.payload_bytes)
        self._steps_received += 1
        self._trouble = ""
        self._received.put(received)
        return True

    def _opened(self, server: str) -> None:
        if self.servers:
            self.reconnects += 1
        if server not in self.servers:
            self.servers.append(server)

    def _ended(self, end: EndOfData) -> None:
        if self._job.plan.total is not None:
            raise ProtocolError(
                f"the server says that the data ends at position {end.position_count}; it had "
                f"announced {self._job.plan.total}"
            )
        self.position_count = end.position_count

    def _complete(self) -> bool:
        steps = self._job.plan.steps
        return steps is not None and self._steps_received >= steps

    def _gone(self, error: ServerUnavailableError) -> ServerUnavailableError:
        start, _ = self._job.plan.at(self._steps_received)
        return ServerUnavailableError(
            f"{self._transport.target} was lost at position {start} and did not come back within "
            f"{self._job.reconnect_timeout:g} s; last reason: {error.message}",
            target=self._transport.target,
            position=start,
        )

    def _requests(
        self, first: int, over: threading.Event
    ) -> Iterator[stream_pb2.StreamBatchesRequest]:
        """What one stream is asked, as the window allows; runs in the transport's thread."""
        yield stream_pb2.StreamBatchesRequest(open=self._job.open)
        for step in self._steps(first):
            if not self._window.admit(step, over):
                return
            start, count = self._job.plan.at(step)
            batch = stream_pb2.BatchRequest(request_id=step, start=start, count=count)
            yield stream_pb2.StreamBatchesRequest(batch=batch)

    def _asked(self, first: int) -> Iterator[Asked]:
        for step in self._steps(first):
            yield Asked(step, self._job.plan.at(step)[0])

    def _steps(self, first: int) -> Iterator[int]:
        steps = self._job.plan.steps
        step = first
        while steps is None or step < steps:
            yield step
            step += 1

    def _finish(self) -> None:
        with contextlib.suppress(HandoffClosedError):
            while isinstance(item := self._received.get(), Received):
                try:
                    arrays = finish(
                        dict(item.batch), self._job.transforms, item.batch.mask, self._buffers.empty
                    )
                except Exception as error:  # noqa: BLE001 - the trainer's thread is to see it
                    self._ready.put(error)
                    return
                self._ready.put(replace(item, batch=item.batch.replaced(arrays)))
            self._ready.put(item)


__all__ = ["BatchStream"]
