"""The HTTP server of the control plane: uvicorn on a thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from infeed.shared.errors import ConfigError, ServerError
from infeed_server.config.address import Address
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.http_protocol import REQUEST_TIMEOUT_SECONDS, LimitedProtocol
from infeed_server.control.tls_listener import TlsListener
from infeed_server.control.token_check import Authorize
from infeed_server.processes.priority import reset_priority, start_unlowered

_START_TIMEOUT_SECONDS = 10.0
_STOP_TIMEOUT_SECONDS = 1.8


class ControlServer:
    """Serves an ASGI app beside the gRPC server, on a daemon thread, from `start` to `stop`.

    The constructor binds the address, so a taken port is an error before the slow loading of
    pipelines. Port 0 is any free one. uvicorn handles no signals, as it does not run on the main
    thread.
    """

    def __init__(
        self, app: ASGIApp, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Raises `ConfigError` if the server cannot listen on the address."""
        self.host = host
        self._socket = Address(host, port, "--http").listen()
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,  # keeps the program's logging
                log_level="warning",
                timeout_graceful_shutdown=1,
            ),
            tls,
        )
        self._thread = threading.Thread(
            target=self._run,
            name="infeed-control",
            daemon=True,
        )

    @property
    def address(self) -> str:
        """`host:port` with the bound port, IPv6 hosts in brackets."""
        return str(Address(self.host, self.port))

    def start(self) -> None:
        """Returns once requests are answered. Raises `ServerError` if that takes too long."""
        start_unlowered(self._thread)
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

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """uvicorn's server with a TLS context of the caller, and limits on handshakes."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._tls = tls

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def protocol() -> LimitedProtocol:
            return LimitedProtocol(self.config, self.server_state, self.lifespan.state)

        # Calls that take long must not have the priority of the event loop.
        loop = asyncio.get_running_loop()
        loop.set_default_executor(
            ThreadPoolExecutor(thread_name_prefix="infeed-control", initializer=reset_priority)
        )
        for listener in sockets or ():
            self.servers = [*getattr(self, "servers", ()), await self._listen(listener, protocol)]
        self.started = True

    async def _listen(
        self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]
    ) -> Any:
        """Returns what uvicorn closes at the end."""
        if self._tls is not None:
            return TlsListener(listener, self._tls, protocol, REQUEST_TIMEOUT_SECONDS)
        loop = asyncio.get_running_loop()
        return await loop.create_server(protocol, sock=listener, backlog=self.config.backlog)


@dataclass(frozen=True)
class ControlAccess:
    """The address of the control plane, and the requests that it answers."""

    http: str | None
    """`host:port`; None or `off`: there is no control plane."""
    insecure: bool = False
    """Whether other machines may reach it without TLS."""
    host_names: tuple[str, ...] = ()
    """Names of this server in requests, besides addresses and this machine's own."""
    tls: ssl.SSLContext | None = None
    """None: it is not encrypted."""
    authorize: Authorize | None = None
    """Checks a request's token; None: it needs none."""


def open_control_server(state: ControlState, access: ControlAccess) -> ControlServer | None:
    """Returns the server, not started yet; None if there is none.

    Raises `ConfigError` for an address that is malformed, unsafe or taken.
    """
    if access.http is None or access.http == "off":
        return None
    address = Address.parse_safe(
        "--http", access.http, encrypted=access.tls is not None, insecure=access.insecure
    )
    if address.is_unix:
        raise ConfigError(f"--http {address}: HTTP needs host:port", address=str(address))
    names = {"localhost", socket.gethostname(), address.host, *access.host_names}
    app = create_app(state, names, access.authorize)
    return ControlServer(app, address.host, address.port, access.tls)
