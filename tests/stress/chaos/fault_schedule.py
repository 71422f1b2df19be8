"""What happens to the servers, and when: drawn from one seed, so that a run can be had again.

Nothing here touches a process. Times are those of a machine that starts a server within
`START_SECONDS`; on a slower one the events come later, but in the same order.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum

START_SECONDS = 10.0
"""What a server takes to start, for the schedule: TensorFlow alone takes most of it."""

LONGEST_FREEZE_SECONDS = 20.0
"""Longer than a client needs to give up a silent peer, which is 15 seconds."""

LONGEST_RESET_BYTES = 8 << 20
"""Some batches: a connection breaks in the middle of one."""

_FORCED_SECONDS = 1.0
"""After which a server is started when there is none at all."""

_SHARE_OF_SHORT = 0.7
"""Of freezes and stalls, those that end before the client gives the server up."""


class Kind(str, Enum):
    """`restart` starts a server that was killed or ended."""

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    RESTART = "restart"
    STALL = "stall"
    RESET = "reset"


_WEIGHTS = {
    Kind.KILL: 3,
    Kind.TERMINATE: 2,
    Kind.FREEZE: 3,
    Kind.RESTART: 10,
    Kind.STALL: 8,
    Kind.RESET: 9,
}
"""Restarts weigh more, so that most servers are there most of the time; stalls and resets, which
only the server behind the proxy can have, so that they are as frequent as the others."""


@dataclass(frozen=True)
class Event:
    """`at` and `seconds` in seconds, `at` from the beginning.

    kill       SIGKILL
    terminate  SIGTERM, as an orchestrator does
    freeze     SIGSTOP, and SIGCONT after `seconds`
    stall      the proxy carries nothing for `seconds`
    reset      the proxy resets every connection after `bytes` more bytes from the server
    """

    at: float
    kind: Kind
    server: int
    seconds: float = 0.0
    bytes: int = 0

    def __str__(self) -> str:
        detail = f" for {self.seconds:.1f} s" if self.seconds else ""
        detail += f" after {self.bytes / 1e6:.1f} MB" if self.kind is Kind.RESET else ""
        return f"{self.kind.value} server {self.server}{detail}"


@dataclass
class _Server:
    """A server as the schedule expects it to be."""

    good_at: float = 0.0
    """From when on it answers; infinite while nobody has started it again."""
    proxy_good_at: float = 0.0

    @property
    def down(self) -> bool:
        return math.isinf(self.good_at)

    def answers(self, now: float) -> bool:
        return max(self.good_at, self.proxy_good_at) <= now


def schedule(
    seed: int,
    count: int,
    pace: float,
    servers: int = 3,
    proxied: int = 0,
    reset_bytes: int = LONGEST_RESET_BYTES,
) -> list[Event]:
    """`count` events, `pace` seconds apart on average; only server `proxied` is behind the proxy.

    There may be no server at all for a while, but never for as long as a feed waits for one.
    """
    rng = random.Random(seed)
    states = [_Server() for _ in range(servers)]
    events: list[Event] = []
    now = 0.0
    while len(events) < count:
        if all(state.down for state in states):
            now += _FORCED_SECONDS
            choices = [(Kind.RESTART, server) for server in range(servers)]
        else:
            now += rng.uniform(0.2 * pace, 1.8 * pace)
            choices = _choices(states, now, proxied)
        if choices:
            kind, server = rng.choices(choices, [_WEIGHTS[kind] for kind, _ in choices])[0]
            event = _draw(rng, now, kind, server, reset_bytes)
            _apply(event, states[server])
            events.append(event)
    return events


def _choices(states: list[_Server], now: float, proxied: int) -> list[tuple[Kind, int]]:
    found: list[tuple[Kind, int]] = []
    for server, state in enumerate(states):
        if state.down:
            found.append((Kind.RESTART, server))
        elif state.answers(now):
            kinds = [Kind.KILL, Kind.TERMINATE, Kind.FREEZE]
            kinds += [Kind.STALL, Kind.RESET] if server == proxied else []
            found += [(kind, server) for kind in kinds]
    return found


def _draw(rng: random.Random, now: float, kind: Kind, server: int, reset_bytes: int) -> Event:
    if kind in (Kind.FREEZE, Kind.STALL):
        short = rng.random() < _SHARE_OF_SHORT
        low, high = (0.5, 8.0) if short else (8.0, LONGEST_FREEZE_SECONDS)
        return Event(now, kind, server, seconds=rng.uniform(low, high))
    if kind is Kind.RESET:
        return Event(now, kind, server, bytes=rng.randrange(reset_bytes))
    return Event(now, kind, server)


def _apply(event: Event, state: _Server) -> None:
    if event.kind in (Kind.KILL, Kind.TERMINATE):
        state.good_at = math.inf
    elif event.kind is Kind.RESTART:
        state.good_at = event.at + START_SECONDS
    elif event.kind is Kind.FREEZE:
        state.good_at = event.at + event.seconds
    elif event.kind is Kind.STALL:
        state.proxy_good_at = event.at + event.seconds


__all__ = ["LONGEST_FREEZE_SECONDS", "START_SECONDS", "Event", "Kind", "schedule"]
