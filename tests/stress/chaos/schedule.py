"""Schedule of server faults, drawn from a seed, so that a run can be repeated in the same order.

An event is applied once its server is ready for it, see `FaultyServers.ready_for`. So a schedule
has no times but pauses, and fits a machine of any speed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SERVERS = 3
PROXIED = 0
"""Index of the server that trainers reach through the proxy."""

MAX_FREEZE_SECONDS = 20.0
"""Maximum freeze or stall: longer than a client's timeout for a silent server, 15 seconds."""

_SHORT_SHARE = 0.7
"""Share of freezes and stalls that end before the client drops the server."""

_WEIGHTS = {
    "kill": 3,  # SIGKILL
    "terminate": 2,  # SIGTERM, as an orchestrator does
    "freeze": 3,  # SIGSTOP, and SIGCONT after `seconds`
    "restart": 10,  # start of a server that was killed or terminated
    "stall": 8,  # the proxy forwards nothing for `seconds`
    "reset": 9,  # the proxy resets every connection after `bytes` more bytes from the server
}
"""Kinds of events, with relative frequencies. Restarts weigh more, so that most servers run most of
the time; stalls and resets too, because they only apply to the server behind the proxy."""


@dataclass(frozen=True)
class Event:
    """Event of one server, `pause` seconds after the previous event."""

    kind: str
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
        seconds = seconds if kind in ("freeze", "stall") else 0.0
        amount = rng.randrange(reset_bytes) if kind == "reset" else 0
        events.append(Event(kind, server, pause, seconds, amount))
        if kind in ("kill", "terminate"):
            down.add(server)
        down -= {server} if kind == "restart" else set()
    return events


def _kinds(server: int, down: set[int]) -> list[str]:
    if server in down:
        return ["restart"]
    faults = ["kill", "terminate", "freeze"]
    return [*faults, "stall", "reset"] if server == PROXIED else faults
