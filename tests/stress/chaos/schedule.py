"""Schedule of server faults, drawn from a seed, so that a run can be repeated in the same order.

An event is applied once its server is ready for it, see `FaultyServers.ready_for`. So a schedule
has no times but pauses, and fits a machine of any speed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

SERVERS = 3
PROXIED = 0
"""Index of the server that trainers reach through the proxy."""

MAX_FREEZE_SECONDS = 20.0
"""Maximum freeze or stall: longer than a client's timeout for a silent server, 15 seconds."""

_SHORT_SHARE = 0.7
"""Share of freezes and stalls that end before the client drops the server."""


class FaultKind(str, Enum):
    """Kinds of events.

    kill       SIGKILL
    terminate  SIGTERM, as an orchestrator does
    freeze     SIGSTOP, and SIGCONT after `seconds`
    restart    start of a server that was killed or terminated
    stall      the proxy forwards nothing for `seconds`
    reset      the proxy resets every connection after `bytes` more bytes from the server
    """

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    RESTART = "restart"
    STALL = "stall"
    RESET = "reset"


_WEIGHTS = {
    FaultKind.KILL: 3,
    FaultKind.TERMINATE: 2,
    FaultKind.FREEZE: 3,
    FaultKind.RESTART: 10,
    FaultKind.STALL: 8,
    FaultKind.RESET: 9,
}
"""Relative frequencies. Restarts weigh more, so that most servers run most of the time; stalls and
resets too, because they only apply to the server behind the proxy."""


@dataclass(frozen=True)
class Event:
    """Event of one server, `pause` seconds after the previous event."""

    kind: FaultKind
    server: int
    pause: float
    seconds: float = 0.0
    bytes: int = 0


def draw_schedule(seed: int, count: int, pace: float, reset_bytes: int) -> list[Event]:
    """Returns `count` events, `pace` seconds apart on average.

    If all servers are down, the next event restarts one of them at once.
    """
    rng = random.Random(seed)
    down: set[int] = set()
    events: list[Event] = []
    while len(events) < count:
        pause = 0.0 if len(down) == SERVERS else rng.uniform(0.2 * pace, 1.8 * pace)
        choices = [(kind, server) for server in range(SERVERS) for kind in _kinds(server, down)]
        kind, server = rng.choices(choices, [_WEIGHTS[kind] for kind, _ in choices])[0]
        seconds = rng.uniform(
            *((0.5, 8) if rng.random() < _SHORT_SHARE else (8, MAX_FREEZE_SECONDS))
        )
        is_timed = kind in (FaultKind.FREEZE, FaultKind.STALL)
        amount = rng.randrange(reset_bytes) if kind is FaultKind.RESET else 0
        events.append(Event(kind, server, pause, seconds if is_timed else 0.0, amount))
        if kind in (FaultKind.KILL, FaultKind.TERMINATE):
            down.add(server)
        down -= {server} if kind is FaultKind.RESTART else set()
    return events


def _kinds(server: int, down: set[int]) -> list[FaultKind]:
    if server in down:
        return [FaultKind.RESTART]
    kinds = [FaultKind.KILL, FaultKind.TERMINATE, FaultKind.FREEZE]
    return [*kinds, FaultKind.STALL, FaultKind.RESET] if server == PROXIED else kinds
