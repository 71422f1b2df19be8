"""TensorFlow's data service as part of a server: joined, or started with it and ended with it."""

from __future__ import annotations

import logging

from infeed_server.cluster.service import Service, Told
from infeed_server.runtime.options import ServerOptions, ServiceOptions

log = logging.getLogger(__name__)


class JoinedService:
    """The service of a dispatcher that runs somewhere already."""

    def __init__(self, dispatcher: str, options: ServiceOptions) -> None:
        self.service = Service(dispatcher, options.compression)

    def start(self) -> None:
        """Returns when the service is ready. Raises `ServerUnavailableError` when it is not, and
        `ConfigError` where a worker has another TensorFlow."""
        self.service.wait_until_ready()

    def watch(self, told: Told) -> None:
        """Tells what is wrong with the service from now on, whenever that changes."""
        self.service.watch(told)

    def stop(self) -> None:
        self.service.close()


def cluster_of(options: ServerOptions) -> JoinedService | None:
    """What a server with these options reads from; None: it makes the batches itself."""
    chosen = options.service
    if chosen is None:
        return None
    return JoinedService(chosen.dispatcher or "", chosen)
