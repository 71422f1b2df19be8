"""Trainers that come and go, some without a word."""

from __future__ import annotations

import time

from benchmarks.processes import started
from benchmarks.resident import own_megabytes
from tests.harness.spawned import SpawnedProcess
from tests.stress.soak.curve import Check, Curve, Tell, handles
from tests.stress.soak.server import Server, serving

_KILLED_SHARE = 0.4
_LOOKS = 50
_FREED_SECONDS = 120.0
COLUMNS = ("server MB", "trainer MB", "unsent MB", "files", "threads", "trainer threads")


def run(count: int, tell: Tell) -> list[Check]:
    """So many connects and disconnects; two in five are processes that are killed."""
    killed = int(count * _KILLED_SHARE)
    begin = time.monotonic()
    with serving() as server:
        first = _visits(server, "tidy", count - killed)
        tell(first.table(f"{count - killed} trainers that close, or drop their feed", "trainers"))
        second = _visits(server, "killed", killed)
        tell(second.table(f"{killed} trainers that are killed, half of them stopped", "trainers"))
        streams = _wait_until_idle(server)
        left = server.unsent_megabytes()
    whole = Curve(COLUMNS, [*first.rows, *second.rows])
    tell(f"{time.monotonic() - begin:.0f} s")
    checks = [first.flat(column, "tidy") for column in COLUMNS]
    checks += [second.flat(column, "killed") for column in COLUMNS]
    checks += [whole.flat(column, "both") for column in ("files", "threads")]
    return [
        *checks,
        Check("streams that are open in the end", streams, 0),
        Check("unsent in the end", left, 0, unit=" MB"),
    ]


def _visits(server: Server, way: str, count: int) -> Curve:
    curve = Curve(COLUMNS)
    with started("tests.stress.soak.visits", server.address, str(count), way) as visitor:
        for number in range(1, count + 1):
            _await(visitor, number)
            if number % max(1, count // _LOOKS) == 0:
                curve.add(str(number), *_figures(server, visitor))
        visitor.finish()
    return curve


def _await(visitor: SpawnedProcess, number: int) -> None:
    assert int(visitor.read_line()) == number


def _figures(server: Server, visitor: SpawnedProcess) -> list[float]:
    files, threads = handles(server.pid)
    return [
        own_megabytes(server.pid),
        own_megabytes(visitor.pid),
        server.unsent_megabytes(),
        files,
        threads,
        handles(visitor.pid)[1],
    ]


def _wait_until_idle(server: Server) -> float:
    """Streams that are still open when none should be for a while."""
    deadline = time.monotonic() + _FREED_SECONDS
    while (streams := server.gauge("streams")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return streams
