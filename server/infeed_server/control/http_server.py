"""The HTTP server of the control plane: uvicorn on a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable

import uvicorn
from starlette.types import ASGIApp

from infeed.errors import ConfigError, ServerError
from infeed_server.config.address import Address
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.http_protocol import LimitedProtocol

_START_TIMEOUT_SECONDS = 10.0
_STOP_TIMEOUT_SECONDS = 1.8


class ControlServer:
    """Serves an ASGI app beside the gRPC server, on a daemon thread, from `start` to `stop`.

    The constructor binds the address, so a taken port is an error before the slow loading of
    pipelines. Port 0 is any free one. uvicorn handles no signals, as it does not run on the main
    thread.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        """Raises `ConfigError` if the server cannot listen on the address."""
        self.host = host
        self._socket = Address(host, port, "--http").listen()
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,  # keeps the program's logging
                log_level="warning",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="infeed-control",
            daemon=True,
        )

    @property
    def address(self) -> str:
        """`host:port` with the bound port, IPv6 hosts in brackets."""
        return str(Address(self.host, self.port))

    def start(self) -> None:
        """Returns once requests are answered. Raises `ServerError` if that takes too long."""
        self._thread.start()
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ServerError(f"the control server did not start on {self.address}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Ends open requests and frees the address, in less than two seconds.

        It may be called twice, or before `start`.
        """
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_SECONDS)
        self._socket.close()

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def open_control_server(
    state: ControlState, http: str | None, *, insecure: bool, host_names: Iterable[str] = ()
) -> ControlServer | None:
    """Returns the server for the option `--http`, not started yet; None for None and `off`.

    Requests may be for any address, and for this machine's names and `host_names`.
    Raises `ConfigError` for an address that is malformed, unsafe or taken.
    """
    if http is None or http == "off":
        return None
    address = Address.parse_safe("--http", http, encrypted=False, insecure=insecure)
    if address.is_unix:
        raise ConfigError(f"--http {address}: HTTP needs host:port", address=str(address))
    names = {"localhost", socket.gethostname(), address.host, *host_names}
    return ControlServer(create_app(state, names), address.host, address.port)
