"""The data service of a server, either started by the server or run elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from typing_extensions import override

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.monitor import LabelledValues, Monitor
from infeed_server.pipeline.definition import Pipeline
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.processes.supervisor import ProcessGroup
from infeed_server.sources.base import ProgressCallback
from infeed_service.dataset import DatasetRequest
from infeed_service.gateway.backend import DataServiceBackend, DataServiceEngine
from infeed_service.gateway.client import DataServiceClient, StatusCallback
from infeed_service.graph import plan_data_service
from infeed_service.options import (
    DispatcherOptions,
    ServiceOptions,
    WorkerOptions,
    parse_dispatcher,
)
from infeed_service.roles.address import with_port
from infeed_service.roles.dispatcher import DispatcherRole, find_work_dir_problem, free_bytes
from infeed_service.roles.liveness import WorkerLivenessMonitor

HUNG_TIMEOUT_SECONDS = 30.0
"""Silence after which the server kills and restarts its worker: longer than a busy worker's delay.
"""

_RESTART_INTERVAL_SECONDS = 0.5
"""Period of the checks for workers that have exited."""

_WORKER_STOP_TIMEOUT_SECONDS = 3.0
"""Wait for workers to exit before they are killed; clients no longer read from them."""


class DataService:
    """A `RemoteEngine`: a data service that a server uses from `start` to `stop`."""

    client: DataServiceClient

    def start(self, monitor: Monitor) -> None:
        """Waits until the service is ready, then exposes its metrics. Raises `InfeedError`."""
        self.client.start()
        add_metrics(monitor, self.workers, self.free_bytes)

    def build(
        self,
        name: str,
        definition: Pipeline,
        budget: MemoryBudget,
        progress: ProgressCallback | None,
    ) -> DataServiceEngine:
        """Registers a pipeline's data set and returns its engine."""
        plan = plan_data_service(name, definition, progress=progress)
        backend = DataServiceBackend(plan, self.client)
        # Finds a problem of the data set at the start.
        backend.register(DatasetRequest(name))
        return DataServiceEngine(backend, budget)

    def watch(self, callback: StatusCallback) -> None:
        """Calls `callback` when the service becomes unavailable or available."""
        self.client.watch(callback)

    def workers(self) -> LabelledValues:
        """Returns the number of workers by whether they answer."""
        client = self.client
        return {("answering",): client.answering_workers, ("lost",): len(client.lost_workers)}

    def free_bytes(self) -> LabelledValues:
        """Returns the free bytes for the journal of a dispatcher that the server started."""
        return {}

    def stop(self) -> None:
        """Stops everything that was started, even if `start` failed."""
        self.client.close()


class ExternalDataService(DataService):
    """A data service whose dispatcher runs in another process."""

    def __init__(self, dispatcher: str, options: ServiceOptions) -> None:
        """Raises `ConfigError` for an invalid address."""
        self.client = DataServiceClient(parse_dispatcher(dispatcher), options.default_compression)


class EmbeddedDataService(DataService):
    """A dispatcher in this process, and workers in child processes.

    With a work directory, the dispatcher listens on a fixed port and the workers on the next ones,
    so a restarted server continues the tasks of its journal.
    """

    def __init__(self, options: ServiceOptions, *, insecure: bool) -> None:
        """Raises `ConfigError` for an address that is unsafe or cannot be listened on."""
        self._options = options
        work_dir, workers = options.work_dir, options.workers or 1
        default = "127.0.0.1:7472" if work_dir else "127.0.0.1:0"
        listen = Address.parse(options.dispatcher_listen or default, "--dispatcher-listen")
        self._worker_listen = [
            Address(listen.host, listen.port + number if work_dir else 0)
            for number in range(1, workers + 1)
        ]
        if work_dir and listen.port == 0:
            raise ConfigError(
                f"--dispatcher-listen {listen}: the journal in --work-dir identifies workers by "
                f"port; give a port, and keep the next {workers} free for the workers",
                address=str(listen),
            )
        # The static sharding policies need all workers in advance.
        known = self._worker_listen if listen.is_loopback else []
        self._dispatcher = DispatcherRole(
            DispatcherOptions(
                listen=str(listen),
                work_dir=work_dir,
                worker_address=[*map(with_port, known)],
                insecure=insecure,
            ),
            "--dispatcher-listen",
        )
        self._stack = ExitStack()

    @override
    def start(self, monitor: Monitor) -> None:
        stack, role = self._stack, self._dispatcher
        stack.callback(role.stop)
        role.start()
        self.client = DataServiceClient(
            role.address,
            self._options.default_compression,
            partial(find_work_dir_problem, role.work_dir),
        )
        workers = local_workers(role.address, self._worker_listen)
        stack.callback(workers.stop, _WORKER_STOP_TIMEOUT_SECONDS, log_kills=False)
        stack.enter_context(
            WorkerLivenessMonitor(
                role.local_address, HUNG_TIMEOUT_SECONDS, on_lost=partial(kill_hung, workers)
            )
        )
        stack.callback(self.client.close)
        workers.start(threading.Event().wait)
        super().start(monitor)
        stack.enter_context(
            PeriodicTask("own-service", _RESTART_INTERVAL_SECONDS, workers.restart_exited)
        )

    @override
    def free_bytes(self) -> LabelledValues:
        return {(): free_bytes(self._dispatcher.work_dir)}

    @override
    def stop(self) -> None:
        self._stack.close()


def local_workers(dispatcher: str, listen: Sequence[Address]) -> ProcessGroup:
    """Returns a group with a worker process for each address; the processes end with this one. An
    address that is not loopback requires the server's `--insecure`."""

    def command(address: str | None) -> Sequence[str]:
        options = WorkerOptions(
            dispatcher=dispatcher,
            listen=address or str(listen[0]),  # at its previous address, it continues its tasks
            http="127.0.0.1:0",
            insecure=not listen[0].is_loopback,
            with_parent=True,
        )
        return [sys.executable, "-m", "infeed", "worker", *options.to_arguments()]

    group = ProcessGroup("worker", len(listen), command)
    for worker, address in zip(group.processes, listen, strict=True):
        worker.address = str(address) if address.port else None
    return group


def kill_hung(workers: ProcessGroup, lost: Sequence[str]) -> None:
    """Kills the workers at the lost addresses, except any that are still starting."""
    hung = [
        number
        for number, worker in enumerate(workers.processes)
        if worker.address in lost and worker.http is not None
    ]
    workers.kill_hung(hung, HUNG_TIMEOUT_SECONDS)


def add_metrics(
    monitor: Monitor,
    workers: Callable[[], LabelledValues],
    work_dir: Callable[[], LabelledValues],
) -> None:
    text = "Workers of TensorFlow's data service, by state: answering or lost."
    monitor.expose("infeed_service_workers", text, workers, "state")
    text = "Free bytes for the journal of the dispatcher that this server started."
    monitor.expose("infeed_service_work_dir_free_bytes", text, work_dir)
