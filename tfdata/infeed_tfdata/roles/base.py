"""The base of the roles of the tf.data service: addresses, and TensorFlow's server."""

from __future__ import annotations

from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_tfdata.roles.loopback import check_listen_address, restrict_if_loopback


class Role:
    """A dispatcher or a worker in this process."""

    def __init__(self, listen: Address, *, insecure: bool) -> None:
        """Checks the address without importing TensorFlow. Raises `ConfigError`."""
        check_listen_address(listen, insecure=insecure)
        self._listen = listen
        self._advertised = listen
        """Port 0 stands for the port listened on."""
        self._insecure = insecure
        self._server: Any = None
        self.port = 0
        """The port listened on, after `start`."""

    @property
    def address(self) -> str:
        """The advertised address, host:port."""
        return str(Address(self._advertised.host, self._advertised.port or self.port))

    @property
    def local_address(self) -> str:
        """The address from this host, host:port."""
        return str(Address("127.0.0.1", self.port))

    def stop(self) -> None:
        """Stops TensorFlow's server."""
        if self._server:
            self._server.stop()
            self._server = None

    def _check_listen_address(self) -> None:
        """Raises `ConfigError` if the address is in use since the last check.

        To be called before TensorFlow's server is made: one that is never started crashes.
        """
        check_listen_address(self._listen, insecure=self._insecure)

    def _start_server(self, server: Any, kind: str, remedy: str = "") -> None:
        """Starts a `DispatchServer` or `WorkerServer`. Raises `ConfigError` when that fails."""
        import tensorflow as tf  # noqa: PLC0415 - takes seconds, and is loaded with the server

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
