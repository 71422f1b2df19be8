"""The HTTP server of the control plane: uvicorn on a thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from infeed.shared.errors import ConfigError, ServerError
from infeed_observe.http.access import Authorize
from infeed_observe.http.app import ControlState, create_app
from infeed_server.config.address import Address
from infeed_server.runtime.certificate import tls_files
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import TokenAuthenticator, require_token

MAX_CONNECTIONS = 64
"""Connections: one more ends the oldest. uvicorn's own limit counts requests, so a host that opens
connections and sends nothing could take every file descriptor, and probes would fail."""

_START_TIMEOUT_SECONDS = 10.0
_STOP_TIMEOUT_SECONDS = 1.8


class _LimitedProtocol(H11Protocol):
    """One connection of at most `MAX_CONNECTIONS`."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened_at = time.monotonic()
        connections: set[Any] = self.connections
        live = [other for other in connections if not other.transport.is_closing()]
        if len(live) > MAX_CONNECTIONS:
            min(live, key=lambda connection: connection.opened_at).transport.abort()


class ControlServer:
    """Serves an ASGI app on a daemon thread from `start` to `stop`. The constructor binds the
    address, so a taken port fails before the slow loading of pipelines. Port 0 is any free
    port."""

    def __init__(
        self, app: ASGIApp, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Raises `ConfigError` if the server cannot listen on the address."""
        self._socket = Address(host, port, "--http").listen()
        self.port: int = self._socket.getsockname()[1]
        self.address = str(Address(host, self.port))
        """`host:port` with the bound port, IPv6 hosts in brackets."""
        config = uvicorn.Config(
            app,
            http=_LimitedProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,  # keeps the program's logging
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="infeed-control", daemon=True
        )

    def start(self) -> None:
        """Starts the server and waits until it answers. Raises `ServerError` if it does not."""
        self._thread.start()
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ServerError(f"the control server did not start on {self.address}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Ends open requests and frees the address, in less than two seconds. Idempotent."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_SECONDS)
        self._socket.close()

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def open_control_plane(state: ControlState, options: ServerOptions) -> ControlServer | None:
    """Returns the server that the options ask for, not started yet; None for `http` off. It accepts
    requests for addresses, this machine's names and `http_hosts`. Raises `ConfigError`."""
    if options.http is None or options.http == "off":
        return None
    tls = tls_files(options) if options.http_tls else None
    encrypted, insecure = tls is not None, options.insecure
    address = Address.parse_safe("--http", options.http, encrypted=encrypted, insecure=insecure)
    if address.is_unix:
        raise ConfigError(f"--http {address}: HTTP needs host:port", address=str(address))
    authorize: Authorize | None = None
    if options.parent_token:
        authorize = partial(require_token, options.parent_token)
    if options.http_tokens:
        tokens = TokenAuthenticator(options.http_tokens, option="--http-tokens")
        authorize = tokens.require_access_to_all
    names = {"localhost", socket.gethostname(), address.host, *(options.http_hosts or ())}
    app = create_app(state, names, authorize)
    return ControlServer(app, address.host, address.port, tls.http_context() if tls else None)
