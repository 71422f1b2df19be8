"""TensorFlow's own servers, made and named. The only module here that TensorFlow's API is in."""

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
    """Its port behind the name of this host: TensorFlow has no public word for it."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class TensorFlowWorker(TensorFlowServer, Protocol):
    """A worker."""

    def _num_tasks(self) -> int:
        """How many tasks it has."""


def dispatch_server(config: DispatcherConfig, listen: Address) -> tuple[TensorFlowServer, int]:
    """A dispatcher that has started, and its port. Raises `ConfigError` when TensorFlow refuses."""
    server = _service.DispatchServer(config, start=False)
    return server, _started(server, f"a dispatcher on {listen}")


def worker_server(config: WorkerConfig, listen: Address) -> tuple[TensorFlowWorker, int]:
    """A worker that has started, and its port. Raises `ConfigError` when TensorFlow refuses."""
    server = _service.WorkerServer(config, start=False)
    return server, _started(server, f"a worker on {listen}")


def _started(server: TensorFlowServer, what: str) -> int:
    try:
        server.start()
    except (tf.errors.OpError, RuntimeError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise ConfigError(f"TensorFlow does not start {what}: {reason}") from None
    return int(server._address.rpartition(":")[2])
