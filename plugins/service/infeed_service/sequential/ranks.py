"""Progress of the ranks that share one read of a dataset: a state machine without threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from infeed_server.engines.base import Request, Trainer

DISCONNECT_TIMEOUT_SECONDS = 60.0
"""A rank without a stream for this long has left, and the others no longer wait for it."""

IDLE_TIMEOUT_SECONDS = 600.0
"""A rank with a stream, but without a request for this long, has left too."""


@dataclass(eq=False)
class RankStream:
    """The progress of a rank's stream in one read."""

    trainer: Trainer
    position: int
    """The first position that the rank may still request."""
    last_active: float
    connected: bool = True
    request: Request | None = None
    """The request that waits for its data."""
    unsent: list[int] = field(default_factory=list)
    """Requested positions whose batches are not yet sent."""


class RankTracker:
    """Tracks the positions that the ranks of a job have requested and received. Not thread-safe. A
    rank's newest stream counts. `begin` is the first position of the read's first step, `step` the
    number of positions that all ranks together take in a step; `clock` returns seconds."""

    def __init__(
        self, world_size: int, begin: int, step: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.world_size = world_size
        self.step = step
        self._begin = begin
        self._clock = clock
        self._created = clock()
        self._ranks: dict[int, RankStream] = {}

    @property
    def idle_seconds(self) -> float | None:
        """Seconds since the last stream ended; None while one is open."""
        if any(stream.connected for stream in self._ranks.values()):
            return None
        last = max((stream.last_active for stream in self._ranks.values()), default=self._created)
        return self._clock() - last

    @property
    def all_connected(self) -> bool:
        """Whether every rank that has connected still has a stream."""
        return all(stream.connected for stream in self._ranks.values())

    @property
    def missing(self) -> list[int]:
        """The ranks that never connected."""
        return [rank for rank in range(self.world_size) if rank not in self._ranks]

    @property
    def age_seconds(self) -> float:
        """Seconds since the read began."""
        return self._clock() - self._created

    def is_free(self, trainer: Trainer) -> bool:
        """Returns whether the trainer's rank has no stream and its world size is this job's."""
        stream = self._ranks.get(trainer.rank)
        return trainer.world_size == self.world_size and not (stream and stream.connected)

    def has_feed(self, trainer: Trainer) -> bool:
        """Returns whether the rank belongs to the trainer's feed."""
        stream = self._ranks.get(trainer.rank)
        return stream is not None and stream.trainer.feed_id == trainer.feed_id

    def connect(self, trainer: Trainer) -> RankStream:
        """Adds a stream of a rank. After a reconnect, it may repeat its requests."""
        position = self._ranks[trainer.rank].position if self.has_feed(trainer) else self._begin
        stream = RankStream(trainer, position, self._clock())
        self._ranks[trainer.rank] = stream
        return stream

    def disconnect(self, stream: RankStream) -> None:
        """Records that a stream has ended."""
        stream.connected, stream.request, stream.last_active = False, None, self._clock()

    def on_request(self, stream: RankStream, request: Request) -> None:
        """Records that the stream waits for a batch."""
        stream.unsent.append(request.start)
        # The rank no longer needs positions that it skips, or it would wait for itself.
        stream.position = min(stream.unsent)
        stream.request, stream.last_active = request, self._clock()

    def on_answer(self, stream: RankStream) -> None:
        """Records that the stream no longer waits."""
        stream.request, stream.last_active = None, self._clock()

    def on_sent(self, stream: RankStream, position: int) -> None:
        """Records that the batch at this position is sent to the rank."""
        if position in stream.unsent:
            stream.unsent.remove(position)
        end = max(stream.position, position + self.step)
        stream.position, stream.last_active = min(stream.unsent, default=end), self._clock()

    def low_watermark(self) -> int | None:
        """Returns the first position that a rank may still request; None if all have left."""
        needed = [stream.position for stream in self._ranks.values() if not self._has_left(stream)]
        if len(self._ranks) < self.world_size and self.age_seconds < DISCONNECT_TIMEOUT_SECONDS:
            needed.append(self._begin)
        return min(needed, default=None)

    def _has_left(self, stream: RankStream) -> bool:
        timeout = IDLE_TIMEOUT_SECONDS if stream.connected else DISCONNECT_TIMEOUT_SECONDS
        return stream.request is None and self._clock() - stream.last_active >= timeout
