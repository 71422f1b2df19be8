"""Soak run of trainers that connect and disconnect, or are killed."""

from __future__ import annotations

import time

from benchmarks.processes import started
from tests.stress.soak.curve import Check, Curve, Show
from tests.stress.soak.server import COLUMNS, Server, serving

_KILLED_SHARE = 0.4
_SAMPLES = 50
_FREE_TIMEOUT_SECONDS = 120.0
"""Maximum time until the server has closed the streams of ended trainers."""


def run(count: int, show: Show) -> list[Check]:
    """Runs `count` connections; two in five are processes that are killed."""
    killed = int(count * _KILLED_SHARE)
    begin = time.monotonic()
    with serving() as server:
        tidy = _run_visits(server, "tidy", count - killed)
        show(tidy.table(f"{count - killed} trainers that close, or drop their feed", "trainers"))
        abrupt = _run_visits(server, "killed", killed)
        show(abrupt.table(f"{killed} trainers that are killed, half of them stopped", "trainers"))
        streams = _wait_until_idle(server)
        unsent = server.unsent_megabytes()
    both = Curve(COLUMNS, [*tidy.rows, *abrupt.rows])
    show(f"{time.monotonic() - begin:.0f} s")
    checks = [tidy.check_flat(column, "tidy") for column in COLUMNS]
    checks += [abrupt.check_flat(column, "killed") for column in COLUMNS]
    checks += [both.check_flat(column, "both") for column in ("files", "threads")]
    return [
        *checks,
        Check("open streams at the end", streams, 0),
        Check("unsent at the end", unsent, 0, unit=" MB"),
    ]


def _run_visits(server: Server, kind: str, count: int) -> Curve:
    curve = Curve(COLUMNS)
    with started("tests.stress.soak.visits", server.address, str(count), kind) as visitor:
        for number in range(1, count + 1):
            assert int(visitor.read_line()) == number
            if number % max(1, count // _SAMPLES) == 0:
                curve.add(str(number), *server.figures(visitor.pid))
            visitor.send_line("next")
        visitor.finish()
    return curve


def _wait_until_idle(server: Server) -> float:
    """Waits until no stream is open; returns the number of open streams after the timeout."""
    deadline = time.monotonic() + _FREE_TIMEOUT_SECONDS
    while (streams := server.gauge("streams")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return streams
