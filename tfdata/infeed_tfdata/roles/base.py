"""The base of the roles of the tf.data service: their addresses, TensorFlow's server and health."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.control.app import ControlState
from infeed_server.control.health import Readiness
from infeed_server.control.http_server import open_control_server
from infeed_server.version import VERSION
from infeed_tfdata.options import RoleOptions
from infeed_tfdata.roles.address import parse_advertise
from infeed_tfdata.roles.loopback import check_listen_address, restrict_if_loopback

log = logging.getLogger(__name__)


class Role:
    """A dispatcher or a worker in this process."""

    def __init__(self, options: RoleOptions, listen_option: str = "--listen") -> None:
        """Checks the addresses without importing TensorFlow. Raises `ConfigError`."""
        self._insecure = options.insecure
        self._listen = Address.parse(options.listen, listen_option)
        check_listen_address(self._listen, insecure=self._insecure)
        self._advertised = parse_advertise(options.advertise) if options.advertise else None
        """Port 0 stands for the port listened on; None: derived later."""
        self._server: Any = None
        self.port = 0
        """The port listened on, after `start`."""

    @property
    def address(self) -> str:
        """The advertised address, host:port."""
        advertised = self._advertised or self._listen
        return str(Address(advertised.host, advertised.port or self.port))

    @property
    def local_address(self) -> str:
        """The address from this host, host:port."""
        return str(Address("127.0.0.1", self.port))

    def stop(self) -> None:
        """Stops TensorFlow's server."""
        if self._server:
            self._server.stop()
            self._server = None

    def _start_server(
        self, kind: str, make_server: Callable[..., Any], config: Any, remedy: str = ""
    ) -> None:
        """Starts a `DispatchServer` or `WorkerServer`. Raises `ConfigError` when that fails."""
        import tensorflow as tf  # noqa: PLC0415 - takes seconds, and is loaded with the server

        # Before the server is made: one that is never started crashes.
        check_listen_address(self._listen, insecure=self._insecure)
        server = make_server(config, start=False)
        try:
            server.start()
        except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
            reason = getattr(error, "message", None) or str(error)
            raise ConfigError(
                f"TensorFlow cannot start a {kind} on {self._listen}: {reason}{remedy}"
            ) from None
        self._server = server
        # The host's name and the port, for which TensorFlow has no public attribute.
        self.port = int(server._address.rpartition(":")[2])
        restrict_if_loopback(self._listen, self.port, insecure=self._insecure)


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
