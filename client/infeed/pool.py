"""All servers of a feed as one: what to ask whom, what came, what went wrong. Thread-safe."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infeed.assembly import Received
from infeed.errors import InfeedError, ServerUnavailableError
from infeed.handoff import Handoff
from infeed.job import Job
from infeed.ledger import Ledger
from infeed.members import Members
from infeed.stats import Tally
from infeed.window import Window

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25
"""How often a server that has nothing to do looks for a straggler."""


@dataclass(frozen=True)
class End:
    """Stands in the queue behind the last batch, of data that has so many positions; None: as many
    as was known before."""

    position_count: int | None = None


Item = Received | BaseException | End


class Pool:
    """Servers come and go; what they bring leaves by `ready`, in order."""

    def __init__(self, target: str, job: Job, ready: Handoff[Item]) -> None:
        self._end = End()
        self._target = target
        self._job = job
        self._ready = ready
        self._window = Window(job.prefetch_bytes, job.expected.payload_bytes)
        self._ledger: Ledger[Received | BaseException] = Ledger(job.plan.steps)
        # Only batches that are the same everywhere can come from several servers.
        self._together = job.pipeline.guarantee.resume == "constant_time"
        self._changed = threading.Condition()
        self._members = Members()
        self._tally = Tally()
        self._alone_since: float | None = None
        self._over = False
        with self._changed:
            self._deliver()

    @property
    def tally(self) -> Tally:
        """What the servers have been up to."""
        return replace(
            self._tally,
            hedges=self._ledger.hedges,
            prefetched_bytes=self._window.waiting_bytes,
            prefetch_limit_bytes=self._window.limit_bytes,
        )

    @property
    def over(self) -> bool:
        """Whether nothing is to be asked any more."""
        return self._over

    def expect(self, servers: Sequence[str]) -> None:
        """The target stands for these servers too; a supplier is about to enter for each."""
        with self._changed:
            self._members.expect(servers)
            self._ledger.alone = len(self._members) == 1

    # What a server's supplier calls, in this order.

    def enter(self, server: str) -> bool:
        """Waits until the server may be connected to; False when the feed is over.

        Where only one server at a time can serve a feed, the others wait for their turn.
        """
        with self._changed:
            while not (self._over or self._together or self._members.has_turn(server)):
                self._changed.wait()
            self._members[server].entered = True
            return not self._over

    def connected(self, server: str, over: threading.Event) -> None:
        """The server can be asked from now on, until its stream is over.

        One that was lost, or left out, first has to accept the stream: where a process is stopped,
        its host still accepts connections.
        """
        with self._changed:
            member = self._members[server]
            if not over.is_set():
                member.draining = False
                if not member.unfit:
                    self._join(server)

    def opened(self, server: str) -> None:
        """The server has accepted the stream."""
        with self._changed:
            self._members[server].opened()
            self._join(server)
            if server not in self._tally.servers:
                self._tally.servers.append(server)
            if self._tally.reconnects < self._tally.losses:
                self._tally.reconnects += 1

    def ask(self, server: str, over: threading.Event) -> int | None:
        """Waits for the step to ask the server for next; None when its stream shall end."""
        with self._changed:
            while not (self._over or over.is_set() or self._members[server].draining):
                step = self._ledger.ask(server, self._window.limit)
                if step is not None:
                    return step
                self._changed.wait(
                    _LOOK_SECONDS if self._together and self._others(server) else None
                )
            return None

    def arrived(self, server: str, step: int, item: Received) -> None:
        """The server has sent a batch that it was asked for."""
        with self._changed:
            if self._over:
                return
            self._alone_since = None
            if self._ledger.arrive(server, step, item):
                self._window.saw(item.payload_bytes)
            self._deliver()

    def failed(self, server: str, error: BaseException) -> None:
        """The server could not make the oldest batch that it owes, and nor could another."""
        with self._changed:
            if self._over:  # the error's frames hold what came of a batch
                return
            step = self._ledger.oldest(server)
            if step is None:
                self._finish(error)
                return
            self._ledger.arrive(server, step, error)
            self._ledger.end(step + 1)
            self._leave(server)
            self._deliver()

    def ends_at(self, step: int, position_count: int) -> None:
        """A server says that the data, whose length nobody knew, ends before this step."""
        with self._changed:
            self._ledger.end(step)
            self._end = End(position_count)
            self._deliver()

    def drain(self, server: str) -> None:
        """The server will soon be gone: it is asked for nothing more, and sends what it owes."""
        with self._changed:
            self._members[server].draining = True
            self._changed.notify_all()

    def lost(self, server: str, error: InfeedError) -> None:
        """The connection is gone, or there never was one: others are asked for what it owed."""
        with self._changed:
            member = self._members[server]
            self._tally.losses += member.open
            member.lost(error)
            self._leave(server)
            self._give_up_if_hopeless()
            self._changed.notify_all()

    def leave_out(self, server: str, error: InfeedError) -> None:
        """The server answers, but cannot serve this feed; if no other can, that ends the feed."""
        with self._changed:
            member = self._members[server]
            if self._together and member.left_out is None and len(self._members) > 1:
                log.warning("%s is left out: %s", server, error.message)
            member.leave_out(error)
            self._leave(server)
            self._give_up_if_hopeless()
            self._changed.notify_all()

    def end(self, over: threading.Event) -> None:
        """Declares one stream over and frees who waits to ask it."""
        with self._changed:
            over.set()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Nothing can go on."""
        with self._changed:
            self._finish(error)

    def rest(self, seconds: float) -> None:
        """Waits; not beyond the end of the feed."""
        with self._changed:
            self._changed.wait_for(lambda: self._over, seconds)

    # What the feed calls.

    def took(self, payload_bytes: int) -> None:
        """The trainer took a batch of that many bytes."""
        with self._changed:
            self._window.took(payload_bytes)
            self._changed.notify_all()

    def awaited(self) -> tuple[str, str]:
        """Who should send the next batch, and what is known about why it does not come."""
        with self._changed:
            if owing := self._ledger.awaited():
                return owing[0], f"asked for it {owing[1]:.1f} s ago"
            if troubles := self._members.troubles:
                told = "; ".join(f"{name}: {trouble}" for name, trouble in troubles.items())
                return self._target, f"reconnecting after: {told}"
            return self._target, "the server is silent"

    def close(self) -> None:
        """Asks for nothing more and lets go of what came."""
        with self._changed:
            self._over = True
            self._ledger.drop()
            self._window.drop()
            self._changed.notify_all()

    def check(self) -> None:
        """Ends the feed if no server was there for too long; to be called now and then."""
        with self._changed:
            self._give_up_if_hopeless()

    def _others(self, server: str) -> bool:
        return any(name != server for name in self._ledger.servers)

    def _join(self, server: str) -> None:
        self._ledger.join(server)
        self._changed.notify_all()

    def _leave(self, server: str) -> None:
        self._ledger.leave(server)
        if self._alone_since is None and not self._ledger.servers:
            self._alone_since = time.monotonic()

    def _deliver(self) -> None:
        while not self._over and (due := self._ledger.deliver()) is not None:
            if isinstance(due, Received):
                self._ready.put(due)
            else:
                self._finish(due)
        if self._ledger.complete:
            self._finish(self._end)
        self._changed.notify_all()

    def _finish(self, item: Item) -> None:
        if not self._over:
            self._over = True
            self._ready.put(item)
        self._changed.notify_all()

    def _give_up_if_hopeless(self) -> None:
        if self._over or self._ledger.servers:
            return
        refusal = self._members.refusal
        if refusal is not None and self._members.all_refuse:
            self._finish(refusal)
            return
        seconds = self._job.reconnect_timeout
        if self._alone_since is not None and time.monotonic() >= self._alone_since + seconds:
            self._finish(refusal or self._gone(seconds))

    def _gone(self, seconds: float) -> ServerUnavailableError:
        start, _ = self._job.plan.at(self._ledger.next)
        reasons = set(self._members.troubles.values())
        return ServerUnavailableError(
            f"{self._target} was lost at position {start} and did not come back within "
            f"{seconds:g} s; last reason: {'; '.join(sorted(reasons))}",
            target=self._target,
            position=start,
        )


__all__ = ["End", "Item", "Pool"]
