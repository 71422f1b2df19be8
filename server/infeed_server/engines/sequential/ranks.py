"""Progress of the ranks that share one read of a dataset: a state machine without threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from infeed_server.engines.base import Trainer

DISCONNECT_TIMEOUT_SECONDS = 60.0
"""A rank without a stream for this long has left: the others no longer wait for it."""

IDLE_TIMEOUT_SECONDS = 600.0
"""A rank with a stream, but without a request for this long, has left too."""


@dataclass
class _RankState:
    """The progress of one rank."""

    feed_id: str
    position: int
    """The first position that the rank may still request."""
    last_active: float
    streams: int = 0
    """Open streams; two while a rank has reconnected and its old stream has not ended yet."""
    is_waiting: bool = False
    reconnected: bool = True
    """Whether its newest stream has made no request yet."""
    unsent: list[int] = field(default_factory=list)
    """Requested positions whose batches are not sent."""


class RankTracker:
    """Tracks which positions the ranks of a job have requested and received. Not thread-safe.

    `begin` is the first position of the read's first step, `step` the positions that all ranks
    together take in a step; `clock` returns seconds.
    """

    def __init__(
        self, world_size: int, begin: int, step: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.world_size = world_size
        self.step = step
        self._begin = begin
        self._clock = clock
        self._created = clock()
        self._ranks: dict[int, _RankState] = {}

    @property
    def idle_seconds(self) -> float | None:
        """Seconds since the last stream ended; None while one is open."""
        if any(state.streams for state in self._ranks.values()):
            return None
        last = max((state.last_active for state in self._ranks.values()), default=self._created)
        return self._clock() - last

    @property
    def all_connected(self) -> bool:
        """Whether every rank that ever connected still has a stream."""
        return all(state.streams for state in self._ranks.values())

    @property
    def missing(self) -> list[int]:
        """The ranks that never connected."""
        return [rank for rank in range(self.world_size) if rank not in self._ranks]

    @property
    def age_seconds(self) -> float:
        """Seconds since the read began."""
        return self._clock() - self._created

    @property
    def slowest(self) -> list[int]:
        """The ranks that the others wait for."""
        low = self.low_watermark()
        behind = {rank for rank, state in self._ranks.items() if state.position == low}
        return sorted(behind.union(self.missing if low == self._begin else ()))

    def is_free(self, trainer: Trainer) -> bool:
        """Returns whether the trainer's rank has no stream, in a job of the same world size."""
        state = self._ranks.get(trainer.rank)
        return trainer.world_size == self.world_size and (state is None or not state.streams)

    def has_feed(self, trainer: Trainer) -> bool:
        """Returns whether the rank belongs to the trainer's feed."""
        state = self._ranks.get(trainer.rank)
        return state is not None and state.feed_id == trainer.feed_id

    def connect(self, trainer: Trainer) -> None:
        """Adds a stream of a rank. After a reconnect, it may repeat its requests."""
        if not self.has_feed(trainer):
            self._ranks[trainer.rank] = _RankState(trainer.feed_id, self._begin, self._clock())
        state = self._ranks[trainer.rank]
        state.streams += 1
        state.reconnected, state.last_active = True, self._clock()

    def disconnect(self, trainer: Trainer) -> None:
        """Removes a stream of a rank."""
        if self.has_feed(trainer):
            state = self._ranks[trainer.rank]
            state.streams -= 1
            state.is_waiting = state.is_waiting and bool(state.streams)
            state.last_active = self._clock()

    def on_request(self, rank: int, position: int) -> None:
        """Records that the rank waits for the batch at this position."""
        state = self._ranks[rank]
        if state.reconnected:
            state.unsent.clear()
        state.unsent.append(position)
        # Positions that the rank skips are not needed, or it would wait for itself.
        state.position = min(state.unsent)
        state.reconnected = False
        state.is_waiting, state.last_active = True, self._clock()

    def on_answer(self, rank: int) -> None:
        """Records that the rank waits no longer."""
        state = self._ranks[rank]
        state.is_waiting, state.last_active = False, self._clock()

    def on_sent(self, trainer: Trainer, position: int) -> None:
        """Records that the batch at this position is sent to the rank."""
        if self.has_feed(trainer):
            state = self._ranks[trainer.rank]
            if position in state.unsent:
                state.unsent.remove(position)
            state.position = min(state.unsent, default=max(state.position, position + self.step))
            state.last_active = self._clock()

    def low_watermark(self) -> int | None:
        """Returns the first position that a rank may still request; None where all have left."""
        needed = [state.position for state in self._ranks.values() if not self._has_left(state)]
        if len(self._ranks) < self.world_size and self.age_seconds < DISCONNECT_TIMEOUT_SECONDS:
            needed.append(self._begin)
        return min(needed, default=None)

    def _has_left(self, state: _RankState) -> bool:
        timeout = IDLE_TIMEOUT_SECONDS if state.streams else DISCONNECT_TIMEOUT_SECONDS
        return not state.is_waiting and self._clock() - state.last_active >= timeout
