"""The prefetching reader: batches in order, whatever happens to the servers.

Each server has a supplier, which asks it and puts together what it sends; the pool says who is
asked for what, and lets batches go in order. Where there are finish transforms, another thread
runs them while the suppliers read on.

    plan → pool ⇄ suppliers ⇄ servers;   pool → [finisher] → next()
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace

from infeed.assembly import Received
from infeed.buffers import Buffers
from infeed.errors import FeedClosedError, InfeedError
from infeed.finish import finish
from infeed.handoff import Handoff, HandoffClosedError
from infeed.job import Job
from infeed.pool import End, Item, Pool
from infeed.stats import Tally
from infeed.supplier import Supplier
from infeed.transport import Transport

JOIN_SECONDS = 2.0
"""How long `close` waits for the threads. They are daemons, so none outlives the process."""

RESOLVE_SECONDS = 10.0
"""How often names are looked up again: servers are added and moved while a feed lives."""

_CHECK_SECONDS = 0.2
_FINISHED_BATCHES = 2


class BatchStream:
    """The batches of a job, one after the other. Starts its threads at once."""

    def __init__(self, transport: Transport, job: Job) -> None:
        self._transport = transport
        self._job = job
        self._buffers = Buffers()
        self._received: Handoff[Item] = Handoff()  # bounded by the window
        self._ready = self._received
        self._pool = Pool(transport.target, job, self._received)
        self._final: BaseException | End | None = None
        self._suppliers: dict[str, Supplier] = {}
        self._stopping = threading.Event()
        self._pid = os.getpid()
        threads = [threading.Thread(target=self._watch, name="infeed-servers", daemon=True)]
        if job.transforms:
            self._ready = Handoff(_FINISHED_BATCHES)
            threads.append(
                threading.Thread(target=self._finish, name="infeed-finisher", daemon=True)
            )
        self._threads = threads
        for thread in threads:
            thread.start()

    @property
    def tally(self) -> Tally:
        return self._pool.tally

    @property
    def over(self) -> bool:
        """Whether `next` has told the end, or what ended the stream."""
        return self._final is not None

    def next(self, timeout: float | None = None) -> Received | End:
        """The next batch, or the end behind the last.

        Raises `TimeoutError` after `timeout` seconds (the stream goes on), what ended the stream,
        and `FeedClosedError`.
        """
        if self._final is None:
            try:
                item = self._ready.get(timeout)
            except HandoffClosedError:
                raise FeedClosedError("the feed was closed") from None
            if isinstance(item, Received):
                self._pool.took(item.payload_bytes)
                return item
            self._final = item
        if isinstance(self._final, End):
            return self._final
        raise self._final

    def awaited(self) -> tuple[str, str]:
        """Who should send the next batch, and what is known about why it does not come."""
        return self._pool.awaited()

    def stop(self) -> None:
        """Tells the threads to end, from any thread, without waiting for them."""
        if os.getpid() != self._pid:
            return  # the threads stayed in the process that this one was forked from
        self._stopping.set()
        self._pool.close()
        self._received.close()
        self._ready.close()
        self._buffers.close()
        for supplier in list(self._suppliers.values()):
            supplier.stop()

    def close(self) -> None:
        """Ends the threads and waits for them, no longer than two seconds. Idempotent."""
        self.stop()
        deadline = time.monotonic() + JOIN_SECONDS
        # Nobody waits twice for a stuck one.
        threads, self._threads = self._threads, []
        suppliers, self._suppliers = self._suppliers, {}
        if os.getpid() != self._pid:
            return
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for supplier in suppliers.values():
            supplier.join(max(0.0, deadline - time.monotonic()))

    def _watch(self) -> None:
        """Has a supplier for each server that the target stands for, now and later."""
        look_at = 0.0
        while not self._stopping.is_set() and not self._pool.over:
            if time.monotonic() >= look_at:
                self._look_up()
                look_at = time.monotonic() + RESOLVE_SECONDS
            self._pool.check()
            self._stopping.wait(_CHECK_SECONDS)

    def _look_up(self) -> None:
        try:
            servers = self._transport.servers()
        except InfeedError as error:
            if not self._suppliers:
                self._pool.fail(error)
            return  # what was known is still good
        except BaseException as error:  # noqa: BLE001 - the trainer's thread is to see it
            self._pool.fail(error)
            return
        self._pool.expect(servers)
        for server in servers:
            if server not in self._suppliers and not self._stopping.is_set():
                supplier = Supplier(server, self._transport, self._job, self._pool, self._buffers)
                self._suppliers[server] = supplier
                supplier.start()

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
