"""Where the ranks that share one reading of a dataset are. No threads and no dataset."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from infeed_server.engines.base import Trainer

AWAY_SECONDS = 60.0
"""A rank that has no stream for so long counts as left: the others wait for it no more."""

IDLE_SECONDS = 600.0
"""So does one that has a stream, and asks for nothing."""


@dataclass
class _Seat:
    """One rank's place."""

    feed_id: str
    position: int
    """The first position that the rank may still ask for."""
    since: float
    """When it last did something."""
    streams: int = 0
    """More than one where a new one came before the end of the old was noticed."""
    asking: bool = False
    fresh: bool = True
    """Whether its stream has asked for nothing yet."""
    unsent: list[int] = field(default_factory=list)
    """Positions that it asked for and that are not on their way."""


class Ranks:
    """Not thread-safe. `begin` is the first position of the step at which the reading begins, and
    `step` the positions that all ranks take in one; `clock` gives seconds."""

    def __init__(
        self,
        world_size: int,
        begin: int,
        step: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.world_size = world_size
        self.step = step
        self._begin = begin
        self._clock = clock
        self._since = clock()
        self._seats: dict[int, _Seat] = {}

    @property
    def deserted(self) -> float | None:
        """Seconds since the last stream ended; None while there is one."""
        if any(seat.streams for seat in self._seats.values()):
            return None
        last = max((seat.since for seat in self._seats.values()), default=self._since)
        return self._clock() - last

    @property
    def whole(self) -> bool:
        """Whether no rank that came has gone."""
        return all(seat.streams for seat in self._seats.values())

    @property
    def missing(self) -> list[int]:
        """The ranks that never came."""
        return [rank for rank in range(self.world_size) if rank not in self._seats]

    @property
    def age(self) -> float:
        """Seconds since the reading began."""
        return self._clock() - self._since

    def seats(self, trainer: Trainer) -> bool:
        """Whether the rank's seat is free."""
        seat = self._seats.get(trainer.rank)
        return trainer.world_size == self.world_size and (seat is None or not seat.streams)

    def knows(self, trainer: Trainer) -> bool:
        """Whether the seat is that of the very same feed."""
        seat = self._seats.get(trainer.rank)
        return seat is not None and seat.feed_id == trainer.feed_id

    def enter(self, trainer: Trainer) -> None:
        """The rank has a new stream; one that comes back may ask again for what it had asked."""
        if not self.knows(trainer):
            self._seats[trainer.rank] = _Seat(trainer.feed_id, self._begin, self._clock())
        seat = self._seats[trainer.rank]
        seat.streams += 1
        seat.fresh, seat.since = True, self._clock()

    def leave(self, trainer: Trainer) -> None:
        """The rank's stream has ended."""
        if self.knows(trainer):
            seat = self._seats[trainer.rank]
            seat.streams -= 1
            seat.asking = seat.asking and bool(seat.streams)
            seat.since = self._clock()

    def asks(self, rank: int, position: int) -> None:
        """The rank waits for the batch at this position."""
        seat = self._seats[rank]
        if seat.fresh:
            seat.unsent.clear()
        seat.unsent.append(position)
        # Of what it passes over it wants nothing, or it would wait for itself.
        seat.position = min(seat.unsent)
        seat.fresh = False
        seat.asking, seat.since = True, self._clock()

    def answered(self, rank: int) -> None:
        """It waits no more."""
        seat = self._seats[rank]
        seat.asking, seat.since = False, self._clock()

    def sent(self, trainer: Trainer, position: int) -> None:
        """The batch at this position is on its way to the rank."""
        if self.knows(trainer):
            seat = self._seats[trainer.rank]
            if position in seat.unsent:
                seat.unsent.remove(position)
            seat.position = min(seat.unsent, default=max(seat.position, position + self.step))
            seat.since = self._clock()

    def floor(self) -> int | None:
        """The first position that is still wanted; None: nobody wants any."""
        wanted = [seat.position for seat in self._seats.values() if not self._left(seat)]
        if len(self._seats) < self.world_size and self.age < AWAY_SECONDS:
            wanted.append(self._begin)
        return min(wanted, default=None)

    @property
    def slowest(self) -> list[int]:
        """The ranks that the others wait for."""
        floor = self.floor()
        behind = {rank for rank, seat in self._seats.items() if seat.position == floor}
        return sorted(behind.union(self.missing if floor == self._begin else ()))

    def _left(self, seat: _Seat) -> bool:
        patience = IDLE_SECONDS if seat.streams else AWAY_SECONDS
        return not seat.asking and self._clock() - seat.since >= patience


__all__ = ["AWAY_SECONDS", "IDLE_SECONDS", "Ranks"]
