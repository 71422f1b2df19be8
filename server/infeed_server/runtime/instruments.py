"""Instruments of other packages, found by entry points.

In the group `infeed.instruments`, the entry point `server` loads a subclass of `Instrument`, which
is made from `Facts`, and `processes` one of `ParentInstrument`, made from `ProcessFacts`. Without
them, a server serves but shows nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.config.user_errors import user_errors
from infeed_server.engines.base import Engine
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.runtime.options import DEFAULT_HTTP, ServerOptions
from infeed_server.serving.health import Health
from infeed_server.serving.instrument import Instrument
from infeed_server.serving.refused import RefusedBatches

log = logging.getLogger(__name__)

_DOOR = Door("infeed.instruments", "instrument")
_NAMES = ("processes", "server")

OpenedT = TypeVar("OpenedT", Instrument, "ParentInstrument")


@dataclass(frozen=True)
class Facts:
    """The data of a server that an instrument may read at any time."""

    options: ServerOptions
    health: Health
    engines: Mapping[str, Engine]
    """The open engines, by pipeline."""
    budget: MemoryBudget
    refused: RefusedBatches


@dataclass(frozen=True)
class ProcessFacts:
    """The data of processes that form one server."""

    options: ServerOptions
    token: str
    """The token that the instruments of the processes require."""
    addresses: Callable[[], list[str | None]]
    """Returns the address of each process's instrument; None for a process that does not serve."""


class ParentInstrument:
    """An instrument that shows several processes as one server; this base class shows nothing."""

    address: str | None = None
    """The `host:port` at which they are shown; None: nowhere."""

    def update(self) -> None:
        """Inspects the processes; called every second."""

    def hung(self, _seconds: float, /) -> list[int]:
        """Returns the numbers of the processes that have not answered for this many seconds."""
        return []

    def drain(self) -> None:
        """Shows that the processes are stopping."""

    def stop(self) -> None:
        """Frees its address."""


def open_instrument(facts: Facts) -> Instrument:
    """Returns the instrument of a server, which shows the server from now on. Raises `ConfigError`,
    and `UserCodeError` for any other exception of its package."""
    return _open("server", Instrument, facts)


def open_parent_instrument(facts: ProcessFacts) -> ParentInstrument:
    """Returns the instrument of several processes. Raises as `open_instrument` does."""
    return _open("processes", ParentInstrument, facts)


def _open(name: str, kind: type[OpenedT], facts: Facts | ProcessFacts) -> OpenedT:
    _DOOR.refuse_others(_NAMES)
    if name not in _DOOR.names():
        _go_unseen(facts.options)
        return kind()
    found: Any = _DOOR.load(name)
    is_instrument = isinstance(found, type) and issubclass(found, kind)
    if not is_instrument:
        problem = f"should be a subclass of {kind.__module__}.{kind.__name__}"
        raise ConfigError(f"the instrument {name!r}, {_DOOR.place(name)}, {problem}")
    with user_errors(_DOOR.subject(name), InfeedError, KeyboardInterrupt, SystemExit):
        opened: OpenedT = found(facts)
    return opened


def _go_unseen(options: ServerOptions) -> None:
    """Refuses a given address at which nothing would answer; only warns about the default."""
    if options.parent_token or options.http in (None, "off"):
        return
    problem = f"--http {options.http}: no installed package serves the dashboard and metrics"
    if options.http != DEFAULT_HTTP:
        raise ConfigError(f"{problem}; install one, or use --http off")
    log.warning("%s; this server runs without them", problem)
