"""Instruments of other packages, found by entry points.

Of `infeed.instruments`, the entry point `server` makes an `Instrument` from `Facts`, and
`processes` a `ParentInstrument` from `ProcessFacts`. Without them a server serves, unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infeed.shared.doors import Door
from infeed_server.engines.base import Engine
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.health import Health
from infeed_server.serving.instrument import Instrument
from infeed_server.serving.refused import RefusedBatches

_DOOR = Door("infeed.instruments", "instrument")


@dataclass(frozen=True)
class Facts:
    """A server, as an instrument may read it at any time."""

    options: ServerOptions
    health: Health
    engines: Mapping[str, Engine]
    """Those that are open, by pipeline."""
    budget: MemoryBudget
    refused: RefusedBatches


@dataclass(frozen=True)
class ProcessFacts:
    """Processes that are one server."""

    options: ServerOptions
    token: str
    """What the instruments of the processes require."""
    addresses: Callable[[], list[str | None]]
    """Returns the address of each one's instrument, None for a process that does not serve."""


class ParentInstrument:
    """Shows several processes as one server; this one shows nothing."""

    address: str | None = None
    """The `host:port` at which they are shown; None: nowhere."""

    def update(self) -> None:
        """Looks at the processes, every second."""

    def hung(self, _seconds: float, /) -> list[int]:
        """Returns the numbers of the processes that have not answered for so long."""
        return []

    def drain(self) -> None:
        """Shows that they stop."""

    def stop(self) -> None:
        """Frees its address."""


def open_instrument(facts: Facts) -> Instrument:
    """Returns the instrument of a server, which shows it already. Raises `ConfigError`."""
    opened: Instrument = _open("server", Instrument, facts)
    return opened


def open_parent_instrument(facts: ProcessFacts) -> ParentInstrument:
    """Returns the instrument of several processes. Raises `ConfigError`."""
    opened: ParentInstrument = _open("processes", ParentInstrument, facts)
    return opened


def _open(name: str, default: Callable[[], Any], facts: object) -> Any:
    return _DOOR.load(name)(facts) if name in _DOOR.names() else default()
