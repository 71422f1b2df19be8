"""The data service of a server: of another dispatcher, or started by the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry
from typing_extensions import override

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.sequential.engine import SequentialEngine
from infeed_server.observe.callback_metrics import LabelledValues
from infeed_server.pipeline.definition import Pipeline
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.sources import ProgressCallback
from infeed_tfdata.gateway.backend import DataServiceBackend
from infeed_tfdata.gateway.client import DataServiceClient, StatusCallback
from infeed_tfdata.gateway.local_workers import LocalWorkers
from infeed_tfdata.graph import plan_data_service
from infeed_tfdata.metrics import add_gauge
from infeed_tfdata.options import DispatcherOptions, ServiceOptions, parse_dispatcher
from infeed_tfdata.roles.address import with_port
from infeed_tfdata.roles.dispatcher import DispatcherRole
from infeed_tfdata.roles.journal import (
    DATASETS_FOLDER,
    find_work_dir_problem,
    free_bytes,
    used_bytes,
)
from infeed_tfdata.roles.liveness import WorkerLivenessMonitor

HUNG_TIMEOUT_SECONDS = 30.0
"""Without an answer for so long, an own worker is killed and restarted: more than a busy one takes.
"""

FREE_TIMEOUT_SECONDS = 15.0
"""For the workers of a killed server to exit, which they do when they notice its end."""

_DEFAULT_LISTEN = "127.0.0.1:0"
_KEPT_LISTEN = "127.0.0.1:7472"
"""With a journal, which identifies the workers by their addresses."""

_RESTART_INTERVAL_SECONDS = 0.5
"""Between checks for workers that have exited or hang."""

_WORKER_STOP_TIMEOUT_SECONDS = 3.0
"""For workers to exit, before they are killed; no client reads from them any more."""


class DataService:
    """A data service that a server uses from `start` to `stop`: a `RemoteEngine`."""

    client: DataServiceClient

    def start(self, registry: CollectorRegistry) -> None:
        """Waits until the service is ready, and adds its metrics.

        Raises `ServerUnavailableError`; an embedded service also `ConfigError` and `ServerError`.
        """
        self.client.start()
        add_metrics(registry, self.workers, self.free_bytes)

    def build(
        self,
        name: str,
        definition: Pipeline,
        budget: MemoryBudget,
        progress: ProgressCallback | None,
    ) -> SequentialEngine:
        """Returns the engine of a pipeline, whose data set is registered."""
        backend = DataServiceBackend(
            plan_data_service(name, definition, progress=progress), self.client
        )
        backend.register_default()
        return SequentialEngine(backend, budget)

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
        """Stops what was started. It may be called after `start` failed."""
        self.client.close()


class ExternalDataService(DataService):
    """The service of a dispatcher that another process runs."""

    def __init__(self, dispatcher: str, options: ServiceOptions) -> None:
        """Raises `ConfigError` for an invalid address."""
        self.client = DataServiceClient(parse_dispatcher(dispatcher), options.default_compression)


class EmbeddedDataService(DataService):
    """A dispatcher in this process, and workers in child processes.

    With a work directory the dispatcher listens on a fixed port, and the workers on the next ones,
    so that a restarted server continues the tasks of its journal.
    """

    def __init__(self, options: ServiceOptions, *, insecure: bool) -> None:
        """Raises `ConfigError` for an address that cannot be listened on, or is not safe."""
        self._options = options
        listen = Address.parse_safe(
            "--dispatcher-listen",
            options.dispatcher_listen or (_KEPT_LISTEN if options.work_dir else _DEFAULT_LISTEN),
            encrypted=False,
            insecure=insecure,
        )
        work_dir = options.work_dir
        workers = options.workers or 1
        numbers = range(1, workers + 1)
        self._worker_listen = [
            Address(listen.host, listen.port + number if work_dir else 0) for number in numbers
        ]
        if work_dir and not listen.is_unix:
            if listen.port == 0:
                raise ConfigError(
                    f"--dispatcher-listen {listen}: a free port, which another start does not "
                    "have, although --work-dir keeps the journal; give a port, and leave the next "
                    f"{workers} to the workers"
                )
            _wait_until_free([listen, *self._worker_listen])
        self._dispatcher = DispatcherRole(
            DispatcherOptions(
                listen=str(listen),
                work_dir=options.work_dir,
                # The static sharding policies need all workers in advance.
                worker_address=[*map(with_port, self._worker_listen)] if listen.is_loopback else [],
                insecure=insecure,
            ),
            "--dispatcher-listen",
        )
        self._stack = ExitStack()

    @override
    def start(self, registry: CollectorRegistry) -> None:
        stack = self._stack
        stack.callback(self._dispatcher.stop)
        self._dispatcher.start()
        address, work_dir = self._dispatcher.address, self._dispatcher.work_dir
        self.client = DataServiceClient(
            address,
            self._options.default_compression,
            used_bytes(work_dir / DATASETS_FOLDER),
            partial(find_work_dir_problem, work_dir),
        )
        workers = LocalWorkers(address, self._worker_listen)
        liveness = WorkerLivenessMonitor(self._dispatcher.local_address, HUNG_TIMEOUT_SECONDS)
        stack.callback(workers.stop, _WORKER_STOP_TIMEOUT_SECONDS)
        stack.enter_context(liveness)
        stack.callback(self.client.close)
        workers.start()
        super().start(registry)
        stack.enter_context(
            PeriodicTask(
                "own-service",
                _RESTART_INTERVAL_SECONDS,
                lambda: workers.restart_failed(liveness.lost),
            )
        )

    @override
    def free_bytes(self) -> LabelledValues:
        return {(): free_bytes(self._dispatcher.work_dir)}

    @override
    def stop(self) -> None:
        self._stack.close()


def add_metrics(
    registry: CollectorRegistry,
    workers: Callable[[], LabelledValues],
    work_dir: Callable[[], LabelledValues],
) -> None:
    """Adds the metrics of a gateway."""
    add_gauge(
        registry,
        "infeed_service_workers",
        "Workers of TensorFlow's data service, by state: answering or lost.",
        workers,
        "state",
    )
    add_gauge(
        registry,
        "infeed_service_work_dir_free_bytes",
        "Free bytes for the journal of the dispatcher that this server started.",
        work_dir,
    )


def _wait_until_free(addresses: list[Address]) -> None:
    """Waits until no process listens on the addresses, or for the timeout: then the process that is
    to listen reports the problem."""
    deadline = time.monotonic() + FREE_TIMEOUT_SECONDS
    for address in addresses:
        while time.monotonic() < deadline:
            try:
                replace(address).require_free()
                break
            except ConfigError:
                time.sleep(0.2)
