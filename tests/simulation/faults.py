"""Faults of a simulation: each is one function, chosen at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.server import SimulatedServer

from infeed.shared.errors import (
    AuthenticationError,
    FingerprintError,
    InfeedError,
    ProtocolError,
    SampleError,
    ServerError,
    ServerUnavailableError,
    SourceError,
    UserCodeError,
)

Fault = Callable[[SimulatedServer, Random], None]

_AT_OPEN: tuple[InfeedError, ...] = (
    AuthenticationError("no such token"),
    FingerprintError("another fingerprint"),
    ServerUnavailableError("too many streams", code="RESOURCE_EXHAUSTED"),
)
_AT_BATCH: tuple[InfeedError, ...] = (
    ProtocolError("a chunk does not match its checksum"),
    ServerError("out of threads"),
    ServerUnavailableError("out of memory", code="RESOURCE_EXHAUSTED"),
    SourceError("no such file"),
)
_OF_A_STEP: tuple[InfeedError, ...] = (
    SampleError("a corrupt record"),
    UserCodeError("map failed"),
)


def _kill(server: SimulatedServer, random: Random) -> None:
    server.kill(random.choice((0.1, 1.0, 5.0, 40.0)) * random.random())


def _lose_host(server: SimulatedServer, random: Random) -> None:
    server.kill(30.0 * random.random(), silently=True)


def _reset(server: SimulatedServer, random: Random) -> None:
    server.cut()


def _lose_link(server: SimulatedServer, random: Random) -> None:
    server.cut(silently=True)


def _freeze(server: SimulatedServer, random: Random) -> None:
    server.freeze(random.choice((0.5, 3.0, 20.0, 60.0)) * random.random())


def _hang(server: SimulatedServer, random: Random) -> None:
    server.hang(random.choice((3.0, 30.0, 300.0)) * random.random())


def _slow_down(server: SimulatedServer, random: Random) -> None:
    server.service_seconds = random.choice((0.01, 0.1, 0.5, 2.0)) * (0.1 + random.random())


def _delay(server: SimulatedServer, random: Random) -> None:
    server.link_seconds = random.choice((0.001, 0.05, 0.5)) * random.random()


def _drain(server: SimulatedServer, random: Random) -> None:
    server.drain(5.0 * random.random())


def drain_without_end(server: SimulatedServer, random: Random) -> None:
    server.drain_without_end()


def _redeploy(server: SimulatedServer, random: Random) -> None:
    """Restarts with another version, or with a token or stream limit that rejects the feed."""
    server.kill(random.random())
    server.fall_sick(40.0 * random.random(), random.choice(_AT_OPEN), at_open=True)


def _fall_sick(server: SimulatedServer, random: Random) -> None:
    server.fall_sick(
        random.choice((1.0, 10.0, 60.0)) * random.random(), random.choice(_AT_BATCH), at_open=False
    )


def _fail_steps(server: SimulatedServer, random: Random) -> None:
    """Fails steps with errors that usually are the same at every server."""
    server.fall_sick(
        random.choice((1.0, 10.0, 60.0)) * random.random(), random.choice(_OF_A_STEP), at_open=False
    )


FAULTS: tuple[Fault, ...] = (
    *(_kill, _lose_host, _reset, _lose_link, _freeze, _hang, _slow_down, _delay, _drain),
    *(drain_without_end, _redeploy, _fall_sick, _fail_steps),
)
