"""Engines of other packages, found by entry points.

An entry point of `infeed.engines` has the name that a source definition states as its `engine`, and
loads a `BuildEngine`. One of `infeed.services` has the name that `--engine` takes, and loads a
`ServicePackage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError
from infeed_server.config.options import Options, option

if TYPE_CHECKING:  # `infeed --help` needs the names of the options alone
    from infeed_server.engines.base import Engine
    from infeed_server.engines.memory_budget import MemoryBudget
    from infeed_server.engines.monitor import Monitor
    from infeed_server.pipeline.definition import Pipeline
    from infeed_server.sources.base import ProgressCallback

LOCAL = "local"

_DOOR = Door("infeed.engines", "engine")
_SERVICES = Door("infeed.services", "engine")

BuildEngine: TypeAlias = "Callable[[str, Pipeline, MemoryBudget], Engine]"
"""Returns the engine of the named pipeline. Raises as `engine_factory.build` does."""


class RemoteEngine(Protocol):
    """Processes outside the server that make its batches."""

    def start(self, monitor: Monitor) -> None:
        """Starts the processes, exposes their metrics, and returns once they can make batches."""

    def build(
        self,
        name: str,
        definition: Pipeline,
        budget: MemoryBudget,
        progress: ProgressCallback | None,
    ) -> Engine:
        """Returns the engine of one pipeline. Raises as `engine_factory.build` does."""

    def watch(self, callback: Callable[[str | None], None]) -> None:
        """Calls `callback` with each new problem of all pipelines, and with None when it ends."""

    def stop(self) -> None:
        """Stops everything that `start` has started, also if it failed."""


OpenEngine = Callable[[bool], RemoteEngine]
"""Returns an engine that has not been started; the argument is the server's `--insecure`. Raises
`ConfigError`."""


@dataclass(frozen=True)
class ServicePackage:
    """Additions of another package to `infeed serve`."""

    options: type[Options]
    """Options of the command. All default to None, which means not given."""
    configure: Callable[[Mapping[str, Any]], OpenEngine]
    """Checks the given options. Raises `ConfigError`."""


def engine_of(name: str) -> BuildEngine:
    """Returns the function that builds engines of this name. Raises `ConfigError` if its package is
    faulty."""
    found: BuildEngine = _DOOR.load(name)
    return found


def engine_names() -> list[str]:
    """Returns the values of `--engine`."""
    return [LOCAL, *_SERVICES.names()]


def engine_options() -> type[Options]:
    """Returns the model of `--engine` and the options that installed engines add."""

    class Engine(Options):
        engine: str = option(
            LOCAL,
            "Engine that makes the batches: local (in this process) or "
            f"{' or '.join(engine_names()[1:])}.",
            "Engine",
        )

    added = [package.options for package in _packages().values()]
    return type("EngineOptions", (*added, Engine), {})  # the help begins with the last base


def configure_engine(options: Options) -> OpenEngine | None:
    """Checks the options and returns what opens the engine; None for the local one. Raises
    `ConfigError`."""
    packages = _packages()
    given = options.model_dump(exclude_none=True)
    name = given.pop("engine")
    if name not in engine_names():
        raise ConfigError(f"--engine {name!r}: unknown engine; use {' or '.join(engine_names())}")
    fields = {other: package.options.model_fields for other, package in packages.items()}
    for added in given.keys() - fields.get(name, {}).keys():
        owners = " or ".join(other for other, known in fields.items() if added in known)
        raise ConfigError(f"--{added.replace('_', '-')} needs --engine {owners}")
    return packages[name].configure(given) if name in packages else None


def _packages() -> dict[str, ServicePackage]:
    return {name: _SERVICES.load(name) for name in _SERVICES.names()}
