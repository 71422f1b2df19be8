"""The processes `infeed dispatcher` and `infeed worker`, from their checks to their shutdown."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from infeed_server.config.address import Address
from infeed_server.control.app import ControlState
from infeed_server.control.http_server import ControlAccess, open_control_server
from infeed_server.data_service.control import RoleHealth, RoleMetrics
from infeed_server.data_service.dispatcher.monitor import DispatcherStatus, WorkerLivenessMonitor
from infeed_server.data_service.dispatcher.role import DispatcherRole
from infeed_server.data_service.dispatcher.work_dir import WorkDirMonitor
from infeed_server.data_service.process_info import VersionMonitor
from infeed_server.data_service.worker.monitor import WorkerMonitor
from infeed_server.data_service.worker.role import DRAIN_TIMEOUT_SECONDS, WorkerRole
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.version import VERSION

log = logging.getLogger(__name__)

OnServing = Callable[[str, str | None], None]
"""Called when the role serves, with its advertised address and that of its control plane."""

RESTART_STATUS = 3
"""The exit status of a worker that must be restarted."""

_CHECK_INTERVAL_SECONDS = 0.5
"""Between checks whether the worker must be restarted."""

_PROBE_TIMEOUT_SECONDS = 5.0
"""At shutdown, for probes of workers that are in progress."""


@dataclass(frozen=True)
class RoleOptions:
    """The addresses of a role. `http` None disables the control plane."""

    listen: str
    http: str | None
    advertise: str | None = None
    insecure: bool = False
    http_hosts: tuple[str, ...] = ()
    """Names, besides this machine's, under which the control plane is requested."""


def serve_dispatcher(
    options: RoleOptions,
    work_dir: Path | None,
    worker_addresses: tuple[str, ...],
    stop: ShutdownSignal,
    on_serving: OnServing,
) -> None:
    """Runs a dispatcher until `stop`. Raises `ConfigError`."""
    role = DispatcherRole(
        Address.parse(options.listen, "--listen"),
        options.advertise,
        work_dir,
        worker_addresses,
        insecure=options.insecure,
    )
    status = DispatcherStatus()
    health, metrics = RoleHealth("dispatcher", status.readiness), _metrics("dispatcher")
    status.add_metrics(metrics)
    with _control_plane(options, health, metrics, "workers") as control, ExitStack() as stack:
        stack.callback(role.stop)
        role.start()
        liveness = WorkerLivenessMonitor(role.local_address)
        versions = VersionMonitor(role.local_address, version("tensorflow"))
        serving = f"serving workers and trainers at {role.address}"

        def on_work_dir(problem: str | None) -> None:
            health.set(ready=problem is None, reason=problem or serving)

        files = WorkDirMonitor(role.work_dir, on_work_dir)
        for monitor in (liveness, versions, files):
            stack.enter_context(monitor)
        status.watch(liveness, versions, files)
        health.set(ready=True, reason=serving)
        stop.is_set(0)  # a signal stops it gracefully from here on
        on_serving(role.address, control)
        stop.wait(_PROBE_TIMEOUT_SECONDS)
        health.set(ready=False, reason="shutting down")


def serve_worker(
    options: RoleOptions,
    dispatcher: str,
    tags: tuple[str, ...],
    stop: ShutdownSignal,
    on_serving: OnServing,
    grace: float = DRAIN_TIMEOUT_SECONDS,
    *,
    keeps_port: bool = False,
) -> None:
    """Runs a worker until `stop`, and ends the process: with status 0, or with `RESTART_STATUS`
    when the worker must be restarted. Raises `ConfigError` and `ServerUnavailableError`."""
    monitor = WorkerMonitor()
    health, metrics = RoleHealth("worker", monitor.readiness), _metrics("worker")
    monitor.add_metrics(metrics)
    with _control_plane(options, health, metrics, "dispatchers") as control, ExitStack() as stack:
        role = WorkerRole(
            dispatcher,
            Address.parse(options.listen, "--listen"),
            options.advertise,
            tags,
            insecure=options.insecure,
            http=Address.parse(control) if control else None,
            grace=grace,
            keeps_port=keeps_port,
        )
        stack.enter_context(monitor.stderr_monitor())
        stack.callback(role.stop)
        role.start()
        stack.enter_context(monitor.watch(role))
        health.set(ready=True, reason=f"registered with the dispatcher at {role.dispatcher}")
        stop.is_set(0)  # a signal stops it gracefully from here on
        on_serving(role.address, control)
        while not (monitor.restart_reason or stop.is_set(_CHECK_INTERVAL_SECONDS)):
            pass
        if monitor.restart_reason:
            log.error("worker %s must be restarted: %s", role.address, monitor.restart_reason)
            stop.set()
        stop.wait(2 * grace)
        health.set(ready=False, reason=monitor.restart_reason or "shutting down")
        time.sleep(grace)
        # Not TensorFlow's shutdown: it waits for the requests of the worker's tasks, and those to a
        # dispatcher that has ended too are repeated for a minute.
        _exit(RESTART_STATUS if monitor.restart_reason else 0)


def _exit(status: int) -> NoReturn:
    """Ends the process at once. The relay of standard error passes on what is written so far."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _metrics(role: str) -> RoleMetrics:
    return RoleMetrics(role, VERSION, version("tensorflow"))


@contextmanager
def _control_plane(
    options: RoleOptions, health: RoleHealth, metrics: RoleMetrics, parts: str
) -> Iterator[str | None]:
    """Serves the control plane, and yields its address."""
    state = ControlState(health, metrics.registry, VERSION, parts)
    control = open_control_server(
        state, ControlAccess(options.http, options.insecure, options.http_hosts)
    )
    if control is None:
        yield None
        return
    with control:
        yield control.address
