"""Base class of the tf.data service's roles: their addresses and TensorFlow's server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_service.options import RoleOptions
from infeed_service.roles.address import parse_advertise
from infeed_service.roles.loopback import check_listen_address, restrict_if_loopback


class Role:
    """A dispatcher or a worker in this process."""

    def __init__(self, options: RoleOptions, listen_option: str = "--listen") -> None:
        """Checks the addresses without importing TensorFlow. Raises `ConfigError`."""
        self._insecure = options.insecure
        self._listen = Address.parse(options.listen, listen_option)
        check_listen_address(self._listen, insecure=self._insecure)
        self._advertised = parse_advertise(options.advertise) if options.advertise else None
        """Port 0 means the port listened on; None is derived later."""
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
        """The address for this host, host:port."""
        return str(Address("127.0.0.1", self.port))

    def stop(self) -> None:
        """Stops TensorFlow's server."""
        if self._server:
            self._server.stop()
            self._server = None

    def _start_server(
        self, kind: str, make_server: Callable[..., Any], config: Any, remedy: str = ""
    ) -> None:
        """Starts a `DispatchServer` or `WorkerServer`. Raises `ConfigError` if that fails."""
        import tensorflow as tf  # noqa: PLC0415 - takes seconds, and is loaded with the server

        # Checked before the server exists, as one that is never started crashes.
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
        # It ends with the port, for which TensorFlow has no public attribute.
        self.port = int(server._address.rpartition(":")[2])
        restrict_if_loopback(self._listen, self.port, insecure=self._insecure)
