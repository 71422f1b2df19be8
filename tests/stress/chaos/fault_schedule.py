"""Schedule of server faults, drawn from a seed, so that a run can be repeated.

Nothing here touches a process. Times assume that a server starts within `SERVER_START_SECONDS`; on
a slower machine, the later events occur as much later, in the same order.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum

SERVER_START_SECONDS = 10.0
"""Assumed start-up time of a server, most of which is TensorFlow's import."""

MAX_FREEZE_SECONDS = 20.0
"""Maximum freeze or stall: longer than a client's timeout for a silent server, 15 seconds."""

MAX_RESET_BYTES = 8 << 20
"""Maximum bytes before a reset: a few batches, so that a connection breaks within one."""

_FORCED_RESTART_SECONDS = 1.0
"""Time after which a server is restarted if all are down."""

_SHORT_SHARE = 0.7
"""Share of freezes and stalls that end before the client drops the server."""


class FaultKind(str, Enum):
    """Kinds of events; `restart` starts a server that was killed or terminated."""

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
    """Event of one server, `offset` seconds after the start of the run.

    kill       SIGKILL
    terminate  SIGTERM, as an orchestrator does
    freeze     SIGSTOP, and SIGCONT after `seconds`
    stall      the proxy forwards nothing for `seconds`
    reset      the proxy resets every connection after `bytes` more bytes from the server
    """

    offset: float
    kind: FaultKind
    server: int
    seconds: float = 0.0
    bytes: int = 0

    def __str__(self) -> str:
        detail = f" for {self.seconds:.1f} s" if self.seconds else ""
        detail += f" after {self.bytes / 1e6:.1f} MB" if self.kind is FaultKind.RESET else ""
        return f"{self.kind.value} server {self.server}{detail}"


@dataclass
class _ServerState:
    """Expected state of a server, in seconds after the start of the run."""

    answers_from: float = 0.0
    """Time from which it answers; infinite until it is restarted."""
    proxy_answers_from: float = 0.0

    @property
    def is_down(self) -> bool:
        return math.isinf(self.answers_from)

    def can_answer(self, now: float) -> bool:
        return max(self.answers_from, self.proxy_answers_from) <= now


def draw_schedule(
    seed: int,
    count: int,
    pace: float,
    servers: int = 3,
    proxied: int = 0,
    reset_bytes: int = MAX_RESET_BYTES,
) -> list[Event]:
    """Returns `count` events, `pace` seconds apart on average.

    Only server `proxied` is behind the proxy. All servers may be down at once, but for less than a
    feed's reconnect timeout.
    """
    rng = random.Random(seed)
    states = [_ServerState() for _ in range(servers)]
    events: list[Event] = []
    now = 0.0
    while len(events) < count:
        if all(state.is_down for state in states):
            now += _FORCED_RESTART_SECONDS
            choices = [(FaultKind.RESTART, server) for server in range(servers)]
        else:
            now += rng.uniform(0.2 * pace, 1.8 * pace)
            choices = _choices(states, now, proxied)
        if choices:
            kind, server = rng.choices(choices, [_WEIGHTS[kind] for kind, _ in choices])[0]
            event = _draw_event(rng, now, kind, server, reset_bytes)
            _apply(event, states[server])
            events.append(event)
    return events


def _choices(states: list[_ServerState], now: float, proxied: int) -> list[tuple[FaultKind, int]]:
    choices: list[tuple[FaultKind, int]] = []
    for server, state in enumerate(states):
        if state.is_down:
            choices.append((FaultKind.RESTART, server))
        elif state.can_answer(now):
            kinds = [FaultKind.KILL, FaultKind.TERMINATE, FaultKind.FREEZE]
            kinds += [FaultKind.STALL, FaultKind.RESET] if server == proxied else []
            choices += [(kind, server) for kind in kinds]
    return choices


def _draw_event(
    rng: random.Random, now: float, kind: FaultKind, server: int, reset_bytes: int
) -> Event:
    if kind in (FaultKind.FREEZE, FaultKind.STALL):
        is_short = rng.random() < _SHORT_SHARE
        low, high = (0.5, 8.0) if is_short else (8.0, MAX_FREEZE_SECONDS)
        return Event(now, kind, server, seconds=rng.uniform(low, high))
    if kind is FaultKind.RESET:
        return Event(now, kind, server, bytes=rng.randrange(reset_bytes))
    return Event(now, kind, server)


def _apply(event: Event, state: _ServerState) -> None:
    if event.kind in (FaultKind.KILL, FaultKind.TERMINATE):
        state.answers_from = math.inf
    elif event.kind is FaultKind.RESTART:
        state.answers_from = event.offset + SERVER_START_SECONDS
    elif event.kind is FaultKind.FREEZE:
        state.answers_from = event.offset + event.seconds
    elif event.kind is FaultKind.STALL:
        state.proxy_answers_from = event.offset + event.seconds
