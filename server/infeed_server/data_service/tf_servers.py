"""TensorFlow's dispatcher and worker servers. Only this module uses their API."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf
from tensorflow.core.protobuf.service_config_pb2 import DispatcherConfig, WorkerConfig

from infeed.errors import ConfigError
from infeed_server.config.address import Address

_service = tf.data.experimental.service


class TensorFlowServer(Protocol):
    """A dispatcher or a worker."""

    _address: str
    """The host's name and the port, for which TensorFlow has no public attribute."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class TensorFlowWorker(TensorFlowServer, Protocol):
    """A worker."""

    def _num_tasks(self) -> int:
        """Returns the number of its tasks."""


def start_dispatcher(config: DispatcherConfig, listen: Address) -> tuple[TensorFlowServer, int]:
    """Starts a dispatcher; returns it and its port. Raises `ConfigError` when that fails."""
    server = _service.DispatchServer(config, start=False)
    return server, _start(server, f"a dispatcher on {listen}")


def start_worker(config: WorkerConfig, listen: Address) -> tuple[TensorFlowWorker, int]:
    """Starts a worker; returns it and its port. Raises `ConfigError` when that fails."""
    server = _service.WorkerServer(config, start=False)
    return server, _start(server, f"a worker on {listen}")


def _start(server: TensorFlowServer, description: str) -> int:
    try:
        server.start()
    except (tf.errors.OpError, RuntimeError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise ConfigError(f"TensorFlow cannot start {description}: {reason}") from None
    return int(server._address.rpartition(":")[2])
