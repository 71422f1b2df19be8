"""Prefetching reader: batches in order from all servers of a target, through failures.

    FeedPlan → Coordinator ⇄ ServerReaders ⇄ servers;   Coordinator → [finish] → ReadyBatches

The trainer's thread takes no lock. What needs one is done by the supervisor, a thread that resolves
names, checks timeouts and ends the other threads.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.ready_batches import FeedItem, ReadyBatches
from infeed.prefetch.reporter import Reporter
from infeed.prefetch.server_pool import ServerPool
from infeed.prefetch.server_reader import ServerReader, Shared
from infeed.prefetch.threads import BackgroundThread, Wakeup
from infeed.shared.errors import InfeedError
from infeed.shared.finish import finish
from infeed.shared.report import RankReport
from infeed.shared.verdict import judge
from infeed.stats import Stats, StatsRecorder
from infeed.transport import Transport
from infeed.wire.buffer_pool import BufferPool
from infeed.wire.received import ReceivedBatch

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchTracer

JOIN_TIMEOUT_SECONDS = 2.0
"""Bound on the time that `close` waits for threads."""

RESOLVE_INTERVAL_SECONDS = 10.0
"""Period at which names are resolved again, to find servers that were added or have moved."""

_CHECK_INTERVAL_SECONDS = 0.2
"""Period at which timeouts are checked."""

_MAX_FINISHED_BATCHES = 2
"""Bound on finished batches in the queue; finishing can make a batch many times larger."""


class Prefetcher:
    """Prefetches the batches of a feed into `ready`, from `start` to `close`."""

    def __init__(
        self, transport: Transport, plan: FeedPlan, tracer: BatchTracer | None = None
    ) -> None:
        """Traces no batch without a tracer. Closes the transport unless it is the user's."""
        self.tracer = tracer
        self._transport = transport
        self.target = transport.target
        self._plan = plan
        self._buffers = BufferPool()
        self._received: SimpleQueue[FeedItem | None] = SimpleQueue()  # bounded by the window
        finishes = bool(plan.finish_transforms or plan.empty)
        max_items = _MAX_FINISHED_BATCHES if finishes else None
        self.ready = ReadyBatches(lambda: self._pool.wake(), max_items)  # noqa: PLW0108 - made below
        deliver = self._received.put if finishes else self.ready.put
        self._coordinator = Coordinator(transport.target, plan, deliver)
        self._pool = ServerPool(self._coordinator, lambda: self.ready.taken)
        self._readers: dict[tuple[str, int], ServerReader] = {}
        """The readers, by server and connection number."""
        self.recorder = StatsRecorder()
        self.reporter = Reporter(self.recorder, self._state)
        self._finish_meter = self.reporter.new_meter()
        self._shared = Shared(transport, plan, self._pool, self._buffers, self.reporter, tracer)
        self._stopped_at: float | None = None
        self._wakeup = Wakeup()
        self._pid = os.getpid()
        self._threads = [BackgroundThread("infeed-servers", self._supervise)]
        if finishes:
            self._threads.append(BackgroundThread("infeed-finisher", self._finish_batches))

    def stats(self, *, has_ended: bool, closed: bool = False) -> Stats:
        """Returns the statistics so far, or those at the feed's end if it has ended."""
        lost, missing = self._coordinator.lost_servers, self._coordinator.missing_servers
        report = self.reporter.report(has_ended=has_ended or closed)
        if self.recorder.earlier is not None:
            report = report.after(self.recorder.earlier.report)
        reports = self.reporter.server_reports()
        servers = [server for name, server in reports.items() if name not in lost]
        shard = self._plan.shard_plan.shard
        ranks = [RankReport(shard.rank, report)]
        ranks += [server.worst for server in servers if server.worst is not None]
        progress = self.ready.progress
        return self.recorder.stats(
            progress,
            **self._coordinator.counters(progress.bytes),
            report=report,
            server_reports=reports,
            lost_servers=tuple(sorted(lost)),
            assessment=judge(ranks, shard.world_size, servers, missing),
        )

    def blocking_server(self) -> tuple[str, str]:
        """Returns the server from which the next batch is expected, and the reason for the wait."""
        return self._coordinator.blocking_server()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Asks the threads to end. Callable from any thread, at any line; never blocks."""
        if os.getpid() != self._pid:
            return  # after a fork, the threads are in the parent process
        self._stopped_at = self._stopped_at or time.monotonic()
        self.ready.close()
        self._wakeup.set()

    def close(self) -> None:
        """Ends the threads and waits for them, for two seconds at most. Idempotent."""
        self.stop()
        if os.getpid() != self._pid:
            return
        # Counted from the first call: a second one must not wait again for a hung thread.
        deadline = (self._stopped_at or 0.0) + JOIN_TIMEOUT_SECONDS
        for thread in self._threads:
            thread.wait_until(deadline)
        for reader in list(self._readers.values()):  # after the supervisor, which starts them
            reader.wait_until(deadline)
        self.ready.close()  # again, for a batch that was put while it was closed
        if self.tracer is not None:
            self.tracer.close()

    def _supervise(self) -> None:
        """Resolves the target and checks the reconnect timeout periodically until the end."""
        resolve_at = 0.0
        readers = self._readers.values()
        while not self._stopped_at and (
            not self._pool.ended or any(reader.running for reader in readers)
        ):
            if not self._pool.ended:
                if time.monotonic() >= resolve_at:
                    self._resolve()
                    resolve_at = time.monotonic() + RESOLVE_INTERVAL_SECONDS
                with self._pool.locked() as coordinator:
                    coordinator.check_timeouts()
                for reader in readers:
                    reader.cancel_overdue()
            self.reporter.sample()
            if self.tracer is not None:
                self.tracer.flush()
            self._wakeup.wait(_CHECK_INTERVAL_SECONDS)
        if self._stopped_at:
            with self._pool.locked() as coordinator:
                coordinator.close()
            self._received.put(None)
        if self.tracer is not None:
            self.tracer.flush()
        self._buffers.close()
        for reader in readers:
            reader.stop()
        if self._plan.options.transport is None:
            self._transport.close()

    def _resolve(self) -> None:
        """Starts the readers of each new server of the target."""
        try:
            servers = self._transport.servers()
        except BaseException as error:  # noqa: BLE001 - raised in the trainer's thread
            if not (self._readers and isinstance(error, InfeedError)):
                with self._pool.locked() as coordinator:
                    coordinator.fail(error)
            return  # the servers that are known remain in use
        with self._pool.locked() as coordinator:
            coordinator.add_servers(servers)
        connections = self._plan.connections_to
        for key in ((server, n) for server in servers for n in range(connections(server))):
            if key not in self._readers and not self._stopped_at:
                self._readers[key] = ServerReader(key[0], self._shared, key[1])
                self._readers[key].start()

    def _state(self) -> dict[str, Any]:
        """Returns the figures of a report that are not sums."""
        steps = self.ready.progress.steps
        return {
            "streams": self._coordinator.server_count,
            "ready_batches": len(self.ready.items),
            "total_steps": steps,
            "position": self._plan.shard_plan.position_after(steps),
            **self._coordinator.slow_connection(),
        }

    def _finish_batches(self) -> None:
        while (item := self._received.get()) is not None:
            if not self._stopped_at:  # else frees the rest of the queue
                finished = self._finish(item) if isinstance(item, ReceivedBatch) else item
                self.ready.put(finished)
                if not isinstance(finished, ReceivedBatch):
                    return

    def _finish(self, item: ReceivedBatch) -> FeedItem:
        batch, plan = item.batch, self._plan
        began = time.monotonic()
        try:
            new = self._buffers.empty
            arrays = finish(dict(batch), plan.finish_transforms, batch.mask, new, plan.empty)
        except Exception as error:  # noqa: BLE001 - raised in the trainer's thread
            return error
        seconds = time.monotonic() - began
        self._finish_meter.finish_seconds += seconds
        if item.span is not None:
            item.span.add("finish", seconds)
        self._finish_meter.update_cpu()
        return replace(item, batch=batch.replaced(arrays))
