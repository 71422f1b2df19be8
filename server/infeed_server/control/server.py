"""The HTTP server of the control plane: uvicorn in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp

from infeed.errors import ConfigError, ServerError

START_SECONDS = 10.0
STOP_SECONDS = 1.8
BACKLOG = 128


class ControlServer:
    """Serves an ASGI app beside the gRPC server, in a daemon thread.

    The address is taken when the server is made, so a taken port is known before the slow work of
    loading pipelines begins; it answers from `start` to `stop`. Port 0 takes a free one. Signals
    stay with the main thread: uvicorn handles them only when it runs there.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        """Raises `ConfigError` when the address cannot be listened on."""
        self.host = host
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,  # the program's own logging stays as it was set up
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
        """`host:port` with the port that was taken, IPv6 hosts in brackets."""
        return _address(self.host, self.port)

    def start(self) -> None:
        """Returns once requests are answered. Raises `ServerError` when that does not happen."""
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ServerError(f"the control server did not start on {self.address}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Ends open requests, returns in under two seconds and gives the address back.

        Stopping twice, or before the start, does no harm.
        """
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
        self._socket.close()

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _listen(host: str, port: int) -> socket.socket:
    where = _address(host, port)
    if not 0 <= port <= 65535:  # getaddrinfo takes the rest of the division
        raise ConfigError(f"cannot listen on {where}: a port is from 0 to 65535", address=where)
    with contextlib.ExitStack() as undo:
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, proto)
            undo.callback(listener.close)
            # A restart must not wait for the connections of the process before; a port that
            # another process listens on is refused all the same.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Only listening takes the port: two sockets that are merely bound may share it.
            listener.listen(BACKLOG)
        except (OSError, UnicodeError) as error:  # the latter for a host that no name can be
            problem = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"cannot listen on {where}: {problem[:1].lower()}{problem[1:]}", address=where
            ) from error
        undo.pop_all()
        return listener


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


__all__ = ["ControlServer"]
