"""TensorFlow's data service as part of a server: joined, or started with it and ended with it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

from typing_extensions import override

from infeed.errors import ConfigError
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.lost import LostWorkers
from infeed_server.cluster.service import Service, Told
from infeed_server.config.address import Address, require_safe
from infeed_server.runtime.local_workers import LocalWorkers
from infeed_server.runtime.options import ServerOptions, ServiceOptions
from infeed_server.runtime.places import Places, places

_LOOK_SECONDS = 0.5

_END_SECONDS = 3.0
"""What workers get to end by themselves; nobody reads from them any more."""


class ServerService:
    """What joined and started services have in common."""

    service: Service

    def start(self) -> None:
        """Returns when the service is ready. Raises `ServerUnavailableError` when it is not, and
        where it is the server's own `ConfigError` and `ServerError`."""
        raise NotImplementedError(type(self).__name__)

    def watch(self, told: Told) -> None:
        """Tells what is wrong with the service from now on, whenever that changes."""
        self.service.watch(told)

    def workers(self) -> dict[tuple[str, ...], float]:
        """How many workers there are, by whether they answer."""
        service = self.service
        return {("answering",): service.answering_workers, ("lost",): len(service.lost_workers)}

    def served(self) -> dict[tuple[str, ...], float]:
        """The bytes that workers have sent, by their addresses; of those that others started, only
        their own control planes tell."""
        return {}

    def stop(self) -> None:
        """Ends what was started. May be called when the start failed."""
        self.service.close()


class JoinedService(ServerService):
    """The service of a dispatcher that runs somewhere already."""

    def __init__(self, dispatcher: str, options: ServiceOptions) -> None:
        """Raises `ConfigError` for an address that is none."""
        where = Address.parse(dispatcher)
        if where.is_unix or not where.port:
            raise ConfigError(
                f"--dispatcher {dispatcher}: give the address of a dispatcher, host:port",
                address=dispatcher,
            )
        self.service = Service(str(where), options.compression)

    @override
    def start(self) -> None:
        self.service.wait_until_ready()
        self.service.keep_looking()


class OwnService(ServerService):
    """A dispatcher in this process, and workers in processes of their own."""

    def __init__(self, options: ServiceOptions, *, insecure: bool) -> None:
        """Raises `ConfigError` for an address that cannot be listened on, or should not be."""
        self._options = options
        listen = Address.parse(options.listen)
        require_safe(listen, "--dispatcher-listen", encrypted=False, insecure=insecure)
        self._host = listen.host
        self._places: Places | None = None
        work_dir = Path(options.work_dir) if options.work_dir else None
        # All of them are known beforehand, so that the static ways to share files out work too.
        fixed = (f"{listen.host}:%port%",) * options.workers
        if work_dir and not listen.is_unix:
            self._places = places(work_dir, listen, options.workers)
            self._places.await_free()
            listen, fixed = Address.parse(self._places.dispatcher), self._places.workers
        fixed = fixed if listen.is_loopback else ()
        self._dispatcher = DispatcherRole(listen, None, work_dir, fixed, insecure=insecure)
        self._stack = ExitStack()
        self._ending = threading.Event()
        self._tending = threading.Thread(target=self._tend, name="infeed-own-service", daemon=True)

    @override
    def start(self) -> None:
        self._stack.callback(self._dispatcher.stop)
        self._dispatcher.start()
        lost = LostWorkers(self._dispatcher.local_address)
        address = self._dispatcher.address
        kept = self._places.workers if self._places else ()
        self._workers = LocalWorkers(self._options.workers, address, self._host, kept)
        self.service = Service(address, self._options.compression)
        self._stack.callback(self._workers.end, _END_SECONDS)
        self._stack.enter_context(lost)
        self._stack.callback(self.service.close)
        self._workers.begin(self._ending.wait)
        self.service.wait_until_ready()
        self.service.keep_looking()
        self._tending.start()

    @override
    def served(self) -> dict[tuple[str, ...], float]:
        return {(address,): size for address, size in dict(self._workers.served).items()}

    @override
    def stop(self) -> None:
        self._ending.set()
        if self._tending.ident is not None:
            self._tending.join()
        self._stack.close()

    def _tend(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self._workers.tend()


def service_of(options: ServerOptions) -> ServerService | None:
    """What a server with these options reads from; None: it makes the batches itself."""
    chosen = options.service
    if chosen is None:
        return None
    if chosen.dispatcher:
        return JoinedService(chosen.dispatcher, chosen)
    return OwnService(chosen, insecure=options.insecure)


__all__ = ["JoinedService", "OwnService", "ServerService", "service_of"]
