"""The lifecycle of the tf.data service within a server: external, or started by the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path

from typing_extensions import override

from infeed_server.config.address import Address
from infeed_server.data_service.dispatcher.monitor import WorkerLivenessMonitor
from infeed_server.data_service.dispatcher.role import DispatcherRole
from infeed_server.data_service.dispatcher.work_dir import (
    DATASETS_FOLDER,
    WorkDirMonitor,
    folder_bytes,
)
from infeed_server.data_service.gateway.client import DataServiceClient, StatusCallback
from infeed_server.data_service.gateway.local_workers import LocalWorkers
from infeed_server.data_service.gateway.saved_addresses import SavedAddresses, load_saved_addresses
from infeed_server.data_service.options import ServiceOptions, parse_dispatcher
from infeed_server.processes.periodic import PeriodicTask

_RESTART_INTERVAL_SECONDS = 0.5
"""Between checks for workers that have exited or hang."""

_WORKER_STOP_TIMEOUT_SECONDS = 3.0
"""For workers to exit, before they are killed; no client reads from them any more."""


class DataServiceLifecycle(ABC):
    """A data service that a server starts to use and stops using."""

    client: DataServiceClient

    @abstractmethod
    def start(self) -> None:
        """Waits until the service is ready.

        Raises `ServerUnavailableError`; an embedded service also `ConfigError` and `ServerError`.
        """

    def watch(self, callback: StatusCallback) -> None:
        """Calls `callback` when the service becomes unavailable or available."""
        self.client.watch(callback)

    def workers(self) -> dict[tuple[str, ...], float]:
        """Returns the number of workers by whether they answer."""
        client = self.client
        return {("answering",): client.answering_workers, ("lost",): len(client.lost_workers)}

    def served(self) -> dict[tuple[str, ...], float]:
        """Returns the bytes that workers sent, by address; none for workers of another process,
        which only their control planes report."""
        return {}

    def work_dir(self) -> dict[tuple[str, ...], float]:
        """Returns the free bytes for the journal of a dispatcher that the server started."""
        return {}

    def stop(self) -> None:
        """Stops what was started. May be called after `start` failed."""
        self.client.close()


class ExternalDataService(DataServiceLifecycle):
    """The service of a dispatcher that another process runs."""

    def __init__(self, dispatcher: str, options: ServiceOptions) -> None:
        """Raises `ConfigError` for an invalid address."""
        self.client = DataServiceClient(parse_dispatcher(dispatcher), options.compression)

    @override
    def start(self) -> None:
        self.client.wait_until_ready()
        self.client.start_checks()


class EmbeddedDataService(DataServiceLifecycle):
    """A dispatcher in this process, and workers in child processes."""

    def __init__(self, options: ServiceOptions, *, insecure: bool) -> None:
        """Raises `ConfigError` for an address that cannot be listened on, or is not safe."""
        self._options = options
        listen = Address.parse_safe(
            "--dispatcher-listen", options.listen, encrypted=False, insecure=insecure
        )
        self._host = listen.host
        self._saved: SavedAddresses | None = None
        work_dir = Path(options.work_dir) if options.work_dir else None
        # The static sharding policies need all workers in advance.
        worker_addresses = (f"{listen.host}:%port%",) * options.workers
        if work_dir and not listen.is_unix:
            self._saved = load_saved_addresses(work_dir, listen, options.workers)
            self._saved.wait_until_free()
            listen, worker_addresses = Address.parse(self._saved.dispatcher), self._saved.workers
        if not listen.is_loopback:
            worker_addresses = ()
        self._dispatcher = DispatcherRole(
            listen, None, work_dir, worker_addresses, insecure=insecure
        )
        self._stack = ExitStack()

    @override
    def start(self) -> None:
        self._stack.callback(self._dispatcher.stop)
        self._dispatcher.start()
        liveness = WorkerLivenessMonitor(self._dispatcher.local_address)
        address = self._dispatcher.address
        saved = self._saved.workers if self._saved else ()
        self._workers = LocalWorkers(self._options.workers, address, self._host, saved)
        work_dir = self._dispatcher.work_dir
        self._files = WorkDirMonitor(work_dir)
        self.client = DataServiceClient(
            address,
            self._options.compression,
            folder_bytes(work_dir / DATASETS_FOLDER),
            lambda: self._files.problem,
        )
        self._stack.callback(self._workers.stop, _WORKER_STOP_TIMEOUT_SECONDS)
        self._stack.enter_context(liveness)
        self._stack.enter_context(self._files)
        self._stack.callback(self.client.close)
        self._workers.start()
        self.client.wait_until_ready()
        self.client.start_checks()
        restarts = PeriodicTask(
            "own-service", _RESTART_INTERVAL_SECONDS, self._workers.restart_failed
        )
        self._stack.enter_context(restarts)

    @override
    def served(self) -> dict[tuple[str, ...], float]:
        return {(address,): size for address, size in dict(self._workers.sent_bytes).items()}

    @override
    def work_dir(self) -> dict[tuple[str, ...], float]:
        return {(): self._files.free_bytes}

    @override
    def stop(self) -> None:
        self._stack.close()
