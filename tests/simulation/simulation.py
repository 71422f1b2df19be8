"""Simulation of a feed: the product's own decisions, hand-over and cursor, in a simulated world.

Real: `Feed`, `ReadyBatches`, `Coordinator` and all that it uses. Simulated: time, servers, links,
and the threads of the feed, which do nothing but wait and call the coordinator.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from tests.client.interrupts import Interrupt, interrupt
from tests.simulation.faults import FAULTS
from tests.simulation.server import SimulatedServer
from tests.simulation.world import SimulatedWakeup, World

from infeed import feed as feed_module
from infeed.batch import Batch
from infeed.cursor import Cursor, Shard
from infeed.feed import Feed
from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.ready_batches import ReadyBatches
from infeed.prefetch.served_plan import plan_feed
from infeed.prefetch.server_state import MAX_LEFT_OUT_SECONDS, STEP_ERRORS, ServerState
from infeed.shared.errors import InfeedError, StallError
from infeed.stats import StatsRecorder
from infeed.testing import FakeTransport
from infeed.transport import MAX_BACKOFF_SECONDS
from infeed.wire.assembler import ReceivedBatch

SLOTS = 4
RECONNECT_TIMEOUT_SECONDS = 60.0

PAUSES_SECONDS = (0.1, 0.1, 0.1, 1.0, 1.0, 5.0, 30.0)
"""Between two faults: bursts, and times in which nothing but time helps."""

PROGRESS_SECONDS = 50.0
"""Bound on the wait for a batch while one server is healthy: 30 s until a server that was left out
is tried again, 15 s until a dead connection is noticed, and the time for a batch."""

_SAMPLES = 50
_SPEC = FakeTransport({"x": np.arange(_SAMPLES)}, batch_size=SLOTS).spec
_MASK = np.ones(SLOTS, bool)


class ViolationError(Exception):
    """A promise of the feed that a run has broken."""


class SimulatedPrefetcher:
    """Has the part of `Prefetcher` that a feed uses, and servers instead of threads."""

    target = "simulated"

    def __init__(self, world: World, server_count: int, cursor: Cursor | None) -> None:
        random = world.random
        options = FeedOptions(
            shard=Shard(random.randrange(2), 2),
            epochs=_epochs(random, cursor),
            state=cursor,
            prefetch_bytes=random.choice((1, 8, 40)) * 32,
            reconnect_timeout=RECONNECT_TIMEOUT_SECONDS,
        )
        self.plan = plan_feed(_SPEC, options)
        self._world = world
        self.ready = ReadyBatches(self.wake_all)
        self.recorder = StatsRecorder()
        self.tracer = None
        self.wakeup = self.ready._arrived = SimulatedWakeup(world)  # type: ignore[assignment]
        self.coordinator = Coordinator("simulated", self.plan, self._put, world.monotonic)
        self.servers = [
            SimulatedServer(
                _name(n, server_count),
                world,
                self.coordinator,
                self._make_batch,
                lambda: self.ready.taken,
                self.wake_all,
            )
            for n in range(server_count)
        ]
        self.coordinator.add_servers([server.name for server in self.servers])

    def blocking_server(self) -> tuple[str, str]:
        return self.coordinator.blocking_server()

    def start(self) -> None:
        self.wake_all()
        self._check_timeout()

    def stop(self) -> None:
        self.coordinator.close()
        self.ready.close()

    close = stop

    def wake_all(self) -> None:
        """Wakes every thread, as `ServerPool.wake` does."""
        for server in self.servers:
            server.wake()

    def _put(self, item: Any) -> None:
        self.ready.put(item)

    def _make_batch(self, step: int) -> ReceivedBatch:
        start, _ = self.plan.shard_plan.batch_range(step)
        batch = Batch({}, start=start, epoch=0, sample_ids=_MASK, mask=_MASK)
        return ReceivedBatch(step, batch, 32)

    def _check_timeout(self) -> None:
        if not self.coordinator.ended:
            self.coordinator.check_timeouts()
            for server in self.servers:
                server.cancel_overdue()
            self._world.after(1.0, self._check_timeout)


def _epochs(random: Random, cursor: Cursor | None) -> int | None:
    """Returns the number of epochs of a feed: None, or some that end after a few hundred steps."""
    begun = cursor.position // _SAMPLES if cursor else 0
    return random.choice((None, begun + random.randint(1, 40)))


def _name(number: int, server_count: int) -> str:
    """Returns a server's name; of two, three or five one is local, so that others are spared."""
    local = {2: 0, 3: 2, 5: 0}.get(server_count)
    return f"unix:/server{number}" if number == local else f"server{number}"


class Simulation:
    """One seed: a trainer that takes batches, through faults, until enough were injected."""

    def __init__(self, seed: int, faults: int) -> None:
        self.seed = seed
        self.world = World(seed)
        self.faults = self.steps = self.feeds = self.interrupts = 0
        self._max_faults = faults
        random = self.world.random
        self._spared = random.random() < 0.5
        """Whether one server has no faults, so that the feed may never end."""
        self._step_seconds = random.choice((0.3, 1.0, 4.0))
        self._cursor: Cursor | None = None
        self._interrupt_next = False
        self._prefetcher = SimulatedPrefetcher(self.world, 1, None)
        self._server_at = self.world.now
        """The last time at which steps could be assigned to a server."""
        self.world.after_each = self._check_bounds

    def run(self) -> None:
        """Raises `ViolationError` if a promise was broken."""
        self.world.after(1.0, self._inject_fault)
        original, feed_module.time = feed_module.time, self.world  # type: ignore[assignment]
        try:
            while self.faults < self._max_faults:
                self._run_feed()
        except ViolationError:
            raise
        except Exception as error:
            raise ViolationError(self._describe(f"{type(error).__name__}: {error}")) from error
        finally:
            feed_module.time = original  # type: ignore[assignment]

    def _run_feed(self) -> None:
        """Runs one feed until it ends with a rightful error, then resumes from its cursor."""
        self.feeds += 1
        count = self.world.random.choice((1, 2, 3, 5))
        self._prefetcher = prefetcher = SimulatedPrefetcher(self.world, count, self._cursor)
        plan = prefetcher.plan.shard_plan
        any_prefetcher: Any = prefetcher
        feed = Feed(any_prefetcher, prefetcher.plan)
        taken = 0
        while self.faults < self._max_faults:
            waiting_since = self.world.now
            try:
                batch = self._take(feed, taken)
            except InfeedError as error:
                self._check_end(error)
                break
            except StopIteration:
                self._check(taken == plan.steps, f"end after {taken} of {plan.steps} steps")
                break
            start, _ = plan.batch_range(taken)
            self._check(plan.steps is None or taken < plan.steps, "a batch behind the end")
            self._check(batch.start == start, f"batch at {batch.start} instead of {start}")
            taken += 1
            self.steps += 1
            self._check_progress(waiting_since)
            self._check_cursor(feed, taken)
            self.world.run_until(self.world.now + self._step_seconds * self.world.random.random())
        self._check_cursor(feed, taken)
        self._cursor = Cursor.from_json(feed.state())
        feed.close()

    def _take(self, feed: Feed, taken: int) -> Batch:
        """Takes the next batch, through timeouts and interrupts."""
        random = self.world.random
        waiting_since = self.world.now
        while True:
            self._check_progress(waiting_since)
            try:
                if self._interrupt_next:
                    self._interrupt_next = False
                    if random.random() < 0.5:
                        self._prefetcher.wakeup.interrupt = Interrupt()
                    elif self._interrupt_anywhere(feed):
                        raise Interrupt
                return feed.next(random.choice((0.5, 5.0)))
            except StallError:
                pass
            except Interrupt:
                self.interrupts += 1
            finally:
                self._prefetcher.wakeup.interrupt = None
            self._check_cursor(feed, taken)

    def _interrupt_anywhere(self, feed: Feed) -> bool:
        """Interrupts `next` at a random bytecode; returns False if a batch was there before it."""
        if not self._prefetcher.ready.items:
            return False
        return interrupt(feed.next, self.world.random.randrange(200))

    def _inject_fault(self) -> None:
        random = self.world.random
        self.world.after(random.choice(PAUSES_SECONDS) * random.random(), self._inject_fault)
        self.faults += 1
        if random.random() < 0.1:
            self._interrupt_next = True
            return
        servers = self._prefetcher.servers[1 if self._spared else 0 :]
        fault = random.choice(FAULTS)
        everywhere = random.random() < 0.1  # a broken switch or file system, a new release
        for server in servers if everywhere else servers and [random.choice(servers)]:
            fault(server, random)

    # Promises.

    def _check_bounds(self) -> None:
        """Checks that what was requested or buffered and not taken fits the window."""
        coordinator, ready = self._prefetcher.coordinator, self._prefetcher.ready
        scheduler, window = coordinator._scheduler, coordinator._window
        if scheduler.servers or coordinator.ended:
            self._server_at = self.world.now
        first = ready.progress.steps
        # One more for a batch that an interrupt has stopped on its way to the trainer.
        limit = first + window.depth + 1
        in_flight = [server.in_flight for server in scheduler.servers.values()]
        for steps in (*in_flight, scheduler._reorder_buffer):
            if steps and max(steps) >= limit:
                self._check(False, f"step {max(steps)} requested after {first}")
        buffered = window.received_bytes - ready.progress.bytes
        self._check(0 <= buffered <= window.max_bytes + 32, f"{buffered} bytes buffered")
        for name, state in coordinator._servers.items():
            self._check_unhealthy(name, state)

    def _check_unhealthy(self, name: str, state: ServerState) -> None:
        """Checks that a server that has failed is tried again soon, and with little at stake."""
        server = self._prefetcher.coordinator._scheduler.servers.get(name)
        requested = len(server.in_flight) if server else 0
        if state.left_out:
            self._check(requested <= 1, f"{requested} steps requested from {name}, left out")
        if state.unhealthy and not state.active:
            limit = MAX_LEFT_OUT_SECONDS if state.left_out else MAX_BACKOFF_SECONDS
            delay = state.retry_at - self.world.now
            self._check(delay < limit + 0.01, f"{name} is not tried again for {delay:.0f} s")

    def _check_progress(self, waiting_since: float) -> None:
        since = max(waiting_since, min(server.healthy_since for server in self._prefetcher.servers))
        waited = self.world.now - since
        self._check(waited <= PROGRESS_SECONDS, f"no batch for {waited:.0f} s, with a good server")
        alone = self.world.now - max(waiting_since, self._server_at)
        self._check(alone <= RECONNECT_TIMEOUT_SECONDS + 10, f"{alone:.0f} s without a server")

    def _check_end(self, error: InfeedError) -> None:
        servers, step = self._prefetcher.servers, self._prefetcher.coordinator._scheduler.next_step
        # The error has taken the place of a step, unless all servers have it.
        confirmed = sum(step - 1 in server.failed_as_everywhere for server in servers)
        if isinstance(error, STEP_ERRORS) and confirmed >= min(2, len(servers)):
            return
        healthy = self.world.now - min(server.healthy_since for server in servers)
        self._check(healthy <= PROGRESS_SECONDS, f"ended with a good server: {error.message}")
        if isinstance(error, STEP_ERRORS) and confirmed:
            return  # the others have not answered
        for server in servers:
            message = f"{server.name} at step {step}: {error.message}"
            self._check(server.name in error.message or len(self._prefetcher.servers) == 1, message)
            if "every server has failed" in error.message:
                self._check(bool(server.failed & {None, step}), message)

    def _check_cursor(self, feed: Feed, taken: int) -> None:
        position = self._prefetcher.plan.shard_plan.position_after(taken)
        state = feed.state()["position"]
        self._check(state == position, f"cursor {state} instead of {position}")

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            raise ViolationError(self._describe(problem))

    def _describe(self, problem: str) -> str:
        return (
            f"seed {self.seed}: {problem}; at {self.world.now:.3f}, fault {self.faults}, "
            f"feed {self.feeds}, step {self.steps}"
        )
