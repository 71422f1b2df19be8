"""Prefetching reader: batches in order from all servers of a target, through failures.

A reader for each server requests batches and assembles them. The server pool assigns the steps
and puts the batches in order. Finish transforms run on a thread of their own.

    FeedPlan → ServerPool ⇄ ServerReaders ⇄ servers;   ServerPool → [finish] → next()
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace

from infeed.errors import FeedClosedError, InfeedError
from infeed.finish import finish
from infeed.prefetch.closable_queue import ClosableQueue, QueueClosedError
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.server_pool import EndOfFeed, FeedItem, ServerPool
from infeed.prefetch.server_reader import ServerReader
from infeed.stats import PrefetchCounters
from infeed.transport import Transport
from infeed.wire.assembler import ReceivedBatch
from infeed.wire.buffer_pool import BufferPool

JOIN_TIMEOUT_SECONDS = 2.0
"""Bound on the time that `close` waits for threads. They are daemons: none outlives the process."""

RESOLVE_INTERVAL_SECONDS = 10.0
"""Period at which names are resolved again, to find servers that were added or moved."""

_CHECK_INTERVAL_SECONDS = 0.2
"""Period at which the reconnect timeout is checked."""

_MAX_FINISHED_BATCHES = 2
"""Bound on finished batches in the queue; finishing can make a batch many times larger."""


class Prefetcher:
    """Prefetches the batches of a feed. Starts its threads at once."""

    def __init__(self, transport: Transport, plan: FeedPlan) -> None:
        self._transport = transport
        self._plan = plan
        self._buffers = BufferPool()
        self._received: ClosableQueue[FeedItem] = ClosableQueue()  # bounded by the window
        self._finished = self._received
        self._pool = ServerPool(transport.target, plan, self._received)
        self._last_item: BaseException | EndOfFeed | None = None
        self._readers: dict[str, ServerReader] = {}
        self._stopping = threading.Event()
        self._pid = os.getpid()
        threads = [threading.Thread(target=self._watch, name="infeed-servers", daemon=True)]
        if plan.finish_transforms:
            self._finished = ClosableQueue(_MAX_FINISHED_BATCHES)
            threads.append(
                threading.Thread(target=self._finish_batches, name="infeed-finisher", daemon=True)
            )
        self._threads = threads
        for thread in threads:
            thread.start()

    @property
    def counters(self) -> PrefetchCounters:
        return self._pool.counters

    @property
    def ended(self) -> bool:
        """Whether `next` has returned the end, or raised the error that ended the feed."""
        return self._last_item is not None

    def next(self, timeout: float | None = None) -> ReceivedBatch | EndOfFeed:
        """Returns the next batch, or the end of the feed.

        Raises `TimeoutError` after `timeout` seconds (the feed continues), the error that ended the
        feed, and `FeedClosedError`.
        """
        if self._last_item is None:
            try:
                item = self._finished.get(timeout)
            except QueueClosedError:
                raise FeedClosedError("the feed was closed") from None
            if isinstance(item, ReceivedBatch):
                self._pool.on_consumed(item.payload_bytes)
                return item
            self._last_item = item
        if isinstance(self._last_item, EndOfFeed):
            return self._last_item
        raise self._last_item

    def blocking_server(self) -> tuple[str, str]:
        """Returns the server that the next batch is expected from, and the reason for the wait."""
        return self._pool.blocking_server()

    def stop(self) -> None:
        """Asks the threads to end, without waiting for them. Callable from any thread."""
        if os.getpid() != self._pid:
            return  # after a fork, the threads are in the parent process
        self._stopping.set()
        self._pool.close()
        self._received.close()
        self._finished.close()
        self._buffers.close()
        for reader in list(self._readers.values()):
            reader.stop()

    def close(self) -> None:
        """Ends the threads and waits for them, for two seconds at most. Idempotent."""
        self.stop()
        deadline = time.monotonic() + JOIN_TIMEOUT_SECONDS
        # A second call must not wait again for a thread that hangs.
        threads, self._threads = self._threads, []
        readers, self._readers = self._readers, {}
        if os.getpid() != self._pid:
            return
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for reader in readers.values():
            reader.join(max(0.0, deadline - time.monotonic()))

    def _watch(self) -> None:
        """Resolves the target periodically, and checks the reconnect timeout."""
        resolve_at = 0.0
        while not self._stopping.is_set() and not self._pool.ended:
            if time.monotonic() >= resolve_at:
                self._resolve()
                resolve_at = time.monotonic() + RESOLVE_INTERVAL_SECONDS
            self._pool.check_reconnect_timeout()
            self._stopping.wait(_CHECK_INTERVAL_SECONDS)

    def _resolve(self) -> None:
        """Starts a reader for each new server of the target."""
        try:
            servers = self._transport.servers()
        except InfeedError as error:
            if not self._readers:
                self._pool.fail(error)
            return  # the servers that are known remain in use
        except BaseException as error:  # noqa: BLE001 - raised in the trainer's thread
            self._pool.fail(error)
            return
        self._pool.add_servers(servers)
        for server in servers:
            if server not in self._readers and not self._stopping.is_set():
                reader = ServerReader(
                    server, self._transport, self._plan, self._pool, self._buffers
                )
                self._readers[server] = reader
                reader.start()

    def _finish_batches(self) -> None:
        transforms, empty = self._plan.finish_transforms, self._buffers.empty
        with contextlib.suppress(QueueClosedError):
            while isinstance(item := self._received.get(), ReceivedBatch):
                batch = item.batch
                try:
                    arrays = finish(dict(batch), transforms, batch.mask, empty)
                except Exception as error:  # noqa: BLE001 - raised in the trainer's thread
                    self._finished.put(error)
                    return
                self._finished.put(replace(item, batch=batch.replaced(arrays)))
            self._finished.put(item)
