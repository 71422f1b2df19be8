"""The processes `infeed dispatcher` and `infeed worker`, from their checks to their shutdown."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from infeed_observe.http.app import ControlState
from infeed_observe.http.server import open_control_plane
from infeed_observe.metrics import Metrics
from infeed_server.engines.monitor import LabelledValues, Monitor
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.health import Readiness
from infeed_server.version import VERSION
from infeed_service.options import DispatcherOptions, RoleOptions, WorkerOptions
from infeed_service.roles.dispatcher import (
    WORK_DIR_CHECK_INTERVAL_SECONDS,
    DispatcherRole,
    find_work_dir_problem,
    free_bytes,
)
from infeed_service.roles.liveness import WorkerLivenessMonitor
from infeed_service.roles.worker import DispatcherMonitor, WorkerRole

log = logging.getLogger(__name__)

OnServing = Callable[[str, str | None], None]
"""Called once the role serves, with the advertised address and the control plane's."""

RESTART_STATUS = 3
"""The exit status of a worker that must be restarted."""

_CHECK_INTERVAL_SECONDS = 0.5
"""Period of the checks whether the worker must be restarted."""

_PROBE_TIMEOUT_SECONDS = 5.0
"""Wait at shutdown for probes of workers that are in progress."""


class RoleHealth:
    """The readiness of a role, and that of its peers, which does not affect its own."""

    def __init__(self, role: str) -> None:
        self._role = role
        self.find_parts: Callable[[], Mapping[str, Readiness]] = dict
        self.overall = Readiness(False, "starting")

    @property
    def parts(self) -> Mapping[str, Readiness]:
        return self.find_parts()

    def set(self, *, ready: bool, reason: str) -> None:
        """Sets the readiness of the role and logs a change."""
        readiness = Readiness(ready, reason)
        if readiness != self.overall:
            self.overall = readiness
            log.info("%s is %s: %s", self._role, "ready" if ready else "not ready", reason)


@contextmanager
def control_plane(
    options: RoleOptions, health: RoleHealth, metrics: Metrics, parts: str
) -> Iterator[str | None]:
    """Serves the control plane and yields its address."""
    state = ControlState(health, metrics.registry, VERSION, parts)
    own = ServerOptions(http=options.http, insecure=options.insecure, http_hosts=options.http_host)
    control = open_control_plane(state, own)
    if control is None:
        yield None
        return
    with control:
        yield control.address


def serve_dispatcher(
    options: DispatcherOptions, stop: ShutdownSignal, on_serving: OnServing
) -> None:
    """Runs a dispatcher until `stop`. Raises `ConfigError`."""
    role = DispatcherRole(options)
    health, metrics = RoleHealth("dispatcher"), role_metrics("dispatcher")
    with control_plane(options, health, metrics, "workers") as control, ExitStack() as stack:
        stack.callback(role.stop)
        role.start()
        liveness = WorkerLivenessMonitor(role.local_address)
        health.find_parts = liveness.readiness
        add_dispatcher_metrics(metrics, liveness, role.work_dir)

        def check_work_dir() -> None:
            problem = find_work_dir_problem(role.work_dir)
            serving = f"serving workers and trainers at {role.address}"
            health.set(ready=problem is None, reason=problem or serving)

        check_work_dir()
        stack.enter_context(liveness)
        interval = WORK_DIR_CHECK_INTERVAL_SECONDS
        stack.enter_context(PeriodicTask("work-dir", interval, check_work_dir))
        stop.is_set(0)  # from here, a signal stops it gracefully
        on_serving(role.address, control)
        stop.wait(_PROBE_TIMEOUT_SECONDS)
        health.set(ready=False, reason="shutting down")


def serve_worker(options: WorkerOptions, stop: ShutdownSignal, on_serving: OnServing) -> None:
    """Runs a worker until `stop`, then exits with status 0, or with `RESTART_STATUS` if the worker
    must be restarted. Raises `ConfigError` and `ServerUnavailableError`."""
    health, metrics = RoleHealth("worker"), role_metrics("worker")
    with control_plane(options, health, metrics, "dispatchers") as control, ExitStack() as stack:
        role = WorkerRole(options)
        stack.callback(role.stop)
        role.start()
        monitor = DispatcherMonitor(role.dispatcher)
        stack.enter_context(monitor)
        health.find_parts = monitor.readiness
        add_worker_metrics(metrics, role, monitor)
        health.set(ready=True, reason=f"registered with the dispatcher at {role.dispatcher}")
        stop.is_set(0)  # from here, a signal stops it gracefully
        on_serving(role.address, control)
        while not (monitor.restart_reason or stop.is_set(_CHECK_INTERVAL_SECONDS)):
            pass
        if monitor.restart_reason:
            log.error("worker %s must be restarted: %s", role.address, monitor.restart_reason)
            stop.set()
        stop.wait(2 * options.grace)
        health.set(ready=False, reason=monitor.restart_reason or "shutting down")
        time.sleep(options.grace)
        logging.shutdown()
        sys.stdout.flush()
        # Avoids TensorFlow's shutdown, which waits for the requests of the worker's tasks and
        # repeats those to an exited dispatcher for a minute.
        os._exit(RESTART_STATUS if monitor.restart_reason else 0)


def role_metrics(role: str) -> Metrics:
    """Returns the metrics of a role, without event counters."""
    return Metrics((), role=role, version=VERSION, tensorflow=version("tensorflow"))


def add_dispatcher_metrics(
    monitor: Monitor, liveness: WorkerLivenessMonitor, work_dir: Path
) -> None:
    def reachable() -> LabelledValues:
        return {(name,): worker.ready for name, worker in liveness.readiness().items()}

    name, text = "infeed_dispatcher_workers", "Registered workers, including lost ones."
    monitor.expose(name, text, lambda: {(): len(reachable())})
    text = "1 if the worker answers at its advertised address."
    monitor.expose("infeed_dispatcher_worker_reachable", text, reachable, "worker")
    name, text = "infeed_dispatcher_lost_tasks_total", "Tasks of lost workers that were ended."
    monitor.expose(name, text, lambda: {(): liveness.ended_tasks})
    text = "Free bytes of the file system with the work directory."
    free = "infeed_dispatcher_work_dir_free_bytes"
    monitor.expose(free, text, lambda: {(): free_bytes(work_dir)})


def add_worker_metrics(monitor: Monitor, role: WorkerRole, peers: DispatcherMonitor) -> None:
    text = "Tasks assigned to the worker."
    monitor.expose("infeed_worker_tasks", text, lambda: {(): role.tasks})
    text = "1 if the worker must be restarted, and is about to exit."
    wedged = "infeed_worker_wedged"
    monitor.expose(wedged, text, lambda: {(): peers.restart_reason is not None})
