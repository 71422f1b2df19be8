"""The roles of the tf.data service as processes: each with its control plane, until it is stopped.
Each reads as its life: check, listen, start, serve, stop."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from infeed.errors import ConfigError
from infeed_server.cluster.census import VersionWatch
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.lost import LostWorkers
from infeed_server.cluster.worker import QUIET_SECONDS, WorkerRole
from infeed_server.config.address import Address, require_safe
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.role import RoleHealth, RoleMetrics
from infeed_server.control.server import ControlServer
from infeed_server.runtime.shown_workers import ShownWorkers
from infeed_server.runtime.signals import Stop
from infeed_server.runtime.work import Work
from infeed_server.version import VERSION

log = logging.getLogger(__name__)

Serving = Callable[[str, str | None], None]
"""Told the address for others, and where the control plane answers, once the role serves."""

STUCK_STATUS = 3
"""How a worker exits that can only be mended by starting it anew."""

_LOOK_SECONDS = 0.5

_END_SECONDS = 5.0
"""What questions to workers that are on their way may take at a stop."""


@dataclass(frozen=True)
class RoleOptions:
    """Where a role listens, and what others are told. `http` None leaves the control plane out."""

    listen: str
    http: str | None
    advertise: str | None = None
    insecure: bool = False


def serve_dispatcher(
    options: RoleOptions,
    work_dir: Path | None,
    worker_addresses: tuple[str, ...],
    stop: Stop,
    serving: Serving,
) -> None:
    """A dispatcher until it is stopped. Raises `ConfigError`."""
    role = DispatcherRole(
        Address.parse(options.listen),
        options.advertise,
        work_dir,
        worker_addresses,
        insecure=options.insecure,
    )
    shown = ShownWorkers()
    health, metrics = RoleHealth("dispatcher", shown.readiness), _metrics("dispatcher")
    shown.measure(metrics)
    with _control(options, health, metrics, "workers") as control, ExitStack() as stack:
        stack.callback(role.stop)
        role.start()
        lost = LostWorkers(role.local_address)
        versions = VersionWatch(role.local_address, version("tensorflow"))
        stack.enter_context(lost)
        stack.enter_context(versions)
        shown.watch(lost, versions)
        health.say(ready=True, reason=f"workers and trainers find it at {role.address}")
        stop.asked(0)  # from here on a signal ends it in good order
        serving(role.address, control)
        stop.wait(_END_SECONDS)
        health.say(ready=False, reason="shutting down")


def serve_worker(
    options: RoleOptions,
    dispatcher: str,
    tags: tuple[str, ...],
    stop: Stop,
    serving: Serving,
    grace: float = QUIET_SECONDS,
    *,
    keeps_port: bool = False,
) -> None:
    """A worker until it is stopped. Raises `ConfigError` and `ServerUnavailableError`, and
    `SystemExit` with `STUCK_STATUS` when only a start anew helps."""
    work = Work()
    health, metrics = RoleHealth("worker", work.readiness), _metrics("worker")
    work.measure(metrics)
    with _control(options, health, metrics, "dispatchers") as control, ExitStack() as stack:
        role = WorkerRole(
            dispatcher,
            Address.parse(options.listen),
            options.advertise,
            tags,
            insecure=options.insecure,
            http=Address.parse(control) if control else None,
            grace=grace,
            keeps_port=keeps_port,
        )
        stack.enter_context(work.errors())
        stack.callback(role.stop)
        role.start()
        stack.enter_context(work.watch(role))
        health.say(ready=True, reason=f"the dispatcher at {role.dispatcher} gives it work")
        stop.asked(0)  # from here on a signal ends it in good order
        serving(role.address, control)
        while not (work.stuck or stop.asked(_LOOK_SECONDS)):
            pass
        if work.stuck:
            log.error("worker %s has to be started anew: %s", role.address, work.stuck)
            stop.request()
        stop.wait(2 * grace)
        health.say(ready=False, reason=work.stuck or "shutting down")
    if work.stuck:
        sys.exit(STUCK_STATUS)


def _metrics(role: str) -> RoleMetrics:
    return RoleMetrics(role, VERSION, version("tensorflow"))


@contextmanager
def _control(
    options: RoleOptions, health: RoleHealth, metrics: RoleMetrics, parts: str
) -> Iterator[str | None]:
    """The control plane while the role lives; its address."""
    if options.http is None:
        yield None
        return
    http = Address.parse(options.http)
    if http.is_unix:
        raise ConfigError(f"--http {http}: HTTP needs host:port", address=str(http))
    require_safe(http, "--http", encrypted=False, insecure=options.insecure)
    state = ControlState(health, metrics, VERSION, parts)
    with ControlServer(create_app(state), http.host, http.port) as server:
        yield server.address
