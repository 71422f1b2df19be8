"""Which server owes which step of a feed, and which steps are here.

No threads and no network: what happened goes in, what to do next comes out. Steps leave in order,
each once, whoever sent them and however often.

    fresh ──ask──► owed ──arrive──► here ──deliver──► the trainer
              ▲      │
              └─lost─┘

A server that keeps all waiting and says nothing while others answer (a stopped process, a dead
link) is silent. What it owes is then late: others are asked for it, and the server for nothing more
until it has sent that after all, or is gone.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

LEAST_PATIENCE_SECONDS = 1.0
"""A step that all wait for is not asked for a second time before that."""

_PATIENCE_FACTOR = 4.0
"""Nor before this many times what a step usually takes; and a server is not silent before this many
times what it usually takes for one."""

_HEDGES_AT_FIRST = 4
_HEDGES_PER_STEP = 0.05
"""Second requests are for stragglers; more would only be load."""

_SHARE_AT_FIRST = 4
"""Steps that a server may owe before it has answered once; the first to join would get all."""

_MEMORY = 0.8
"""Of what the past says about a server's pace, this much is kept with each new batch."""


class Ledger(Generic[T]):
    """Not thread-safe. Servers are names; `clock` gives seconds."""

    def __init__(self, steps: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`steps` None: endless, or the servers will tell the end."""
        self.hedges = 0
        """Steps that were asked for again while an earlier request was under way."""
        self.next = 0
        """The step that is delivered next."""
        self.alone = True
        """Whether no other server is to be expected than the first that joins."""
        self._steps = steps
        self._clock = clock
        self._fresh = 0
        self._lost: list[int] = []  # a heap
        self._owed: dict[str, dict[int, float]] = {}
        self._late: dict[str, set[int]] = {}
        self._stragglers = 0
        self._owers: Counter[int] = Counter()  # without those that are late
        self._here: dict[int, T] = {}
        self._pace: dict[str, float] = {}
        self._answered_at: dict[str, float] = {}
        self._usual = 0.0

    @property
    def complete(self) -> bool:
        """Whether every step was delivered."""
        return self._steps is not None and self.next >= self._steps

    def join(self, server: str) -> None:
        """The server can be asked from now on."""
        self._owed.setdefault(server, {})
        self._late.setdefault(server, set())

    @property
    def servers(self) -> list[str]:
        """Those that can be asked."""
        return list(self._owed)

    def end(self, step: int) -> None:
        """There are no steps from this one on."""
        self._steps = step if self._steps is None else min(step, self._steps)

    def oldest(self, server: str) -> int | None:
        """The step that the server was asked for first, of those that it owes."""
        return next(iter(self._owed.get(server, ())), None)

    def leave(self, server: str) -> None:
        """The server is gone: what it alone owed is to be asked for again.

        If it comes back, it may be another process, and has to show its pace anew.
        """
        self._pace.pop(server, None)
        self._answered_at.pop(server, None)
        late = self._late.pop(server, set())
        for step in self._owed.pop(server, {}):
            if step not in late:
                self._lose(step)

    def ask(self, server: str, limit: int) -> int | None:
        """The step to ask the server for now, which it owes from then on; None: nothing yet.

        Steps from `limit` on are not wanted yet.
        """
        if server not in self._owed:
            return None
        step = self._wanted(server, limit)
        if step is not None:
            self._owed[server][step] = self._clock()
            self._owers[step] += 1
        return step

    def arrive(self, server: str, step: int, item: T) -> bool:
        """The server has sent a step that it owed; False when another was quicker."""
        since = self._owed[server].pop(step)
        if step in self._late[server]:
            self._late[server].remove(step)
        else:
            self._disown(step)
        is_new = self._is_wanted(step)
        self._learn(server, since, is_new=is_new)
        if is_new:
            self._here[step] = item
        return is_new

    def deliver(self) -> T | None:
        """The next step in order, if it is here."""
        if self.next not in self._here:
            return None
        self.next += 1
        return self._here.pop(self.next - 1)

    def drop(self) -> None:
        """Lets go of what is here: nobody wants it any more."""
        self._here.clear()

    def owed(self, server: str) -> int:
        """Steps that the server was asked for and has not sent."""
        return len(self._owed.get(server, {}))

    def awaited(self) -> tuple[str, float] | None:
        """Who was asked first for the next step, and how many seconds ago; None: nobody."""
        asked = [(owed[self.next], name) for name, owed in self._owed.items() if self.next in owed]
        if not asked:
            return None
        since, name = min(asked)
        return name, self._clock() - since

    def _wanted(self, server: str, limit: int) -> int | None:
        self._look_for_silence()
        if self._late[server]:
            return None
        if self.owed(server) < self._share(server, limit):
            while self._lost:
                step = heapq.heappop(self._lost)
                if self._is_wanted(step):
                    self.hedges += any(step in late for late in self._late.values())
                    return step
            if self._fresh < limit and self._exists(self._fresh):
                self._fresh += 1
                return self._fresh - 1
        return self.next if self._straggles(server) else None

    def _look_for_silence(self) -> None:
        """Where who should send the next step is silent, all that it owes is late."""
        for server, owed in self._owed.items():
            late = self._late[server]
            if self.next in owed and self.next not in late and self._is_silent(server):
                lost = owed.keys() - late
                late |= lost
                for step in lost:
                    self._lose(step)

    def _is_silent(self, server: str) -> bool:
        """Measured by the time between answers, not by what steps take: that grows with what a
        server owes. Without an answer from another since, it may be that all are busy."""
        since = max(self._owed[server][self.next], self._answered_at.get(server, 0.0))
        pace = self._pace.get(server) or max(self._pace.values(), default=0.0)
        patience = max(LEAST_PATIENCE_SECONDS, _PATIENCE_FACTOR * pace)
        last = max(self._answered_at.values(), default=0.0)
        return last > since and self._clock() - since >= patience

    def _lose(self, step: int) -> None:
        """One of the servers that owe the step will not send it; it may have to be asked for."""
        self._disown(step)
        if step not in self._owers and self._is_wanted(step):
            heapq.heappush(self._lost, step)

    def _disown(self, step: int) -> None:
        self._owers[step] -= 1
        if not self._owers[step]:
            del self._owers[step]

    def _is_wanted(self, step: int) -> bool:
        return step >= self.next and step not in self._here and self._exists(step)

    def _exists(self, step: int) -> bool:
        return self._steps is None or step < self._steps

    def _share(self, server: str, limit: int) -> int:
        """Steps that the server may owe: more the faster it answers, so that all would end what
        they owe at about the same time."""
        if server not in self._pace and not self.alone:
            return _SHARE_AT_FIRST
        others = [name for name in self._owed if name != server and not self._late[name]]
        if not others:
            return limit - self.next
        paces = [self._pace.get(name) for name in (server, *others)]
        known = [pace for pace in paces if pace]
        usual = sum(known) / len(known) if known else 1.0
        speeds = [1 / (pace or usual) for pace in paces]
        return max(2, -int(-(limit - self.next) * speeds[0] // sum(speeds)))

    def _straggles(self, server: str) -> bool:
        """Whether the step that all wait for should be asked of this server too."""
        if self.owed(server) or self._owers[self.next] != 1 or self.next in self._owed[server]:
            return False
        if self._stragglers >= _HEDGES_AT_FIRST + _HEDGES_PER_STEP * self.next:
            return False
        awaited = self.awaited()
        if awaited is None or awaited[1] < self.patience:
            return False
        self._stragglers += 1
        self.hedges += 1
        return True

    @property
    def patience(self) -> float:
        """Seconds after which a step that all wait for is asked for a second time."""
        return max(LEAST_PATIENCE_SECONDS, _PATIENCE_FACTOR * self._usual)

    def _learn(self, server: str, since: float, *, is_new: bool) -> None:
        """From one answer: the time that a step takes, and that the server takes for each.

        What came too late says nothing of what is usual; it would make for too much patience.
        """
        now = self._clock()
        begin = max(since, self._answered_at.get(server, since))
        self._answered_at[server] = now
        self._pace[server] = _blend(self._pace.get(server), max(now - begin, 1e-6))
        if is_new:
            self._usual = _blend(self._usual, now - since)


def _blend(old: float | None, new: float) -> float:
    return _MEMORY * old + (1 - _MEMORY) * new if old else new


__all__ = ["LEAST_PATIENCE_SECONDS", "Ledger"]
