"""The processes `infeed dispatcher` and `infeed worker`, from their checks to their shutdown."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from infeed_server.control.app import ControlState
from infeed_server.control.health import Readiness
from infeed_server.control.http_server import open_control_server
from infeed_server.observe.callback_metrics import LabelledValues
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.version import VERSION
from infeed_service.metrics import expose, new_registry
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
"""Called when the role serves, with the advertised address and the control plane's."""

RESTART_STATUS = 3
"""The exit status of a worker that must be restarted."""

_CHECK_INTERVAL_SECONDS = 0.5
"""Between checks whether the worker must be restarted."""

_PROBE_TIMEOUT_SECONDS = 5.0
"""At shutdown, for probes of workers that are in progress."""


class RoleHealth:
    """The readiness of a role, and of its peers, which does not affect its own."""

    def __init__(self, role: str) -> None:
        self._role = role
        self.find_parts: Callable[[], Mapping[str, Readiness]] = dict
        self.overall = Readiness(False, "starting")

    @property
    def parts(self) -> Mapping[str, Readiness]:
        return self.find_parts()

    def set(self, *, ready: bool, reason: str) -> None:
        """Sets the readiness of the role, and logs a change."""
        readiness = Readiness(ready, reason)
        if readiness != self.overall:
            self.overall = readiness
            log.info("%s is %s: %s", self._role, "ready" if ready else "not ready", reason)


@contextmanager
def control_plane(
    options: RoleOptions, health: RoleHealth, registry: CollectorRegistry, parts: str
) -> Iterator[str | None]:
    """Serves the control plane, and yields its address."""
    state = ControlState(health, registry, VERSION, parts)
    control = open_control_server(
        state, options.http, insecure=options.insecure, host_names=options.http_host
    )
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
    health, registry = RoleHealth("dispatcher"), new_registry("dispatcher")
    with control_plane(options, health, registry, "workers") as control, ExitStack() as stack:
        stack.callback(role.stop)
        role.start()
        liveness = WorkerLivenessMonitor(role.local_address)
        health.find_parts = liveness.readiness
        add_dispatcher_metrics(registry, liveness, role.work_dir)

        def check_work_dir() -> None:
            problem = find_work_dir_problem(role.work_dir)
            serving = f"serving workers and trainers at {role.address}"
            health.set(ready=problem is None, reason=problem or serving)

        check_work_dir()
        stack.enter_context(liveness)
        interval = WORK_DIR_CHECK_INTERVAL_SECONDS
        stack.enter_context(PeriodicTask("work-dir", interval, check_work_dir))
        stop.is_set(0)  # a signal stops it gracefully from here on
        on_serving(role.address, control)
        stop.wait(_PROBE_TIMEOUT_SECONDS)
        health.set(ready=False, reason="shutting down")


def serve_worker(options: WorkerOptions, stop: ShutdownSignal, on_serving: OnServing) -> None:
    """Runs a worker until `stop`, and ends the process: with status 0, or with `RESTART_STATUS`
    when the worker must be restarted. Raises `ConfigError` and `ServerUnavailableError`."""
    health, registry = RoleHealth("worker"), new_registry("worker")
    with control_plane(options, health, registry, "dispatchers") as control, ExitStack() as stack:
        role = WorkerRole(options)
        stack.callback(role.stop)
        role.start()
        monitor = DispatcherMonitor(role.dispatcher)
        stack.enter_context(monitor)
        health.find_parts = monitor.readiness
        add_worker_metrics(registry, role, monitor)
        health.set(ready=True, reason=f"registered with the dispatcher at {role.dispatcher}")
        stop.is_set(0)  # a signal stops it gracefully from here on
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
        # Not TensorFlow's shutdown: it waits for the requests of the worker's tasks, and those to a
        # dispatcher that has ended too are repeated for a minute.
        os._exit(RESTART_STATUS if monitor.restart_reason else 0)


def add_dispatcher_metrics(
    registry: CollectorRegistry, liveness: WorkerLivenessMonitor, work_dir: Path
) -> None:

    def reachable() -> LabelledValues:
        return {(name,): worker.ready for name, worker in liveness.readiness().items()}

    text = "Workers that have registered, including lost ones."
    expose(registry, "infeed_dispatcher_workers", text, lambda: len(reachable()))
    text = "1 if the worker answers at its advertised address."
    expose(registry, "infeed_dispatcher_worker_reachable", text, reachable, "worker")
    text = "Tasks of lost workers that were ended."
    expose(registry, "infeed_dispatcher_lost_tasks_total", text, lambda: liveness.ended_tasks)
    text, name = "Free bytes of the file system with the work directory.", "work_dir_free_bytes"
    expose(registry, f"infeed_dispatcher_{name}", text, lambda: free_bytes(work_dir))


def add_worker_metrics(
    registry: CollectorRegistry, role: WorkerRole, monitor: DispatcherMonitor
) -> None:
    expose(registry, "infeed_worker_tasks", "Tasks that the worker has.", lambda: role.tasks)
    text = "1 if the worker must be restarted; it is about to exit."
    expose(registry, "infeed_worker_wedged", text, lambda: monitor.restart_reason is not None)
