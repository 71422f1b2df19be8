"""Requests to the control plane of a server, the HTTP address of `infeed serve --http`."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from infeed.cli.files import problem_of
from infeed.http2.target import is_local
from infeed.http2.tls_config import TLS
from infeed.shared.errors import (
    AuthenticationError,
    ConfigError,
    InfeedError,
    PermissionDeniedError,
    ProtocolError,
    ServerUnavailableError,
)

_MAX_BYTES = 16 << 20
"""Bound on an answer: the status of a thousand trainers is a megabyte."""

_TRAINERS_PORT = (
    "it may be the address for trainers; give that of --http, which infeed serve prints after it: "
    "serving on HOST:PORT (http HOST:PORT). With --http-tls, the address begins with https://"
)


_REFUSALS: Mapping[int, type[InfeedError]] = {
    http.client.UNAUTHORIZED: AuthenticationError,
    http.client.FORBIDDEN: PermissionDeniedError,
}


@dataclass(frozen=True)
class ControlPlane:
    """The control plane at an address."""

    host: str
    port: int
    tls: TLS | None = None
    """None: requests are not encrypted."""
    token: str | None = field(default=None, repr=False)
    timeout: float = 5.0
    """Seconds that a connection may take, and then an answer."""

    @classmethod
    def parse(
        cls, target: str, tls: TLS | None = None, token: str | None = None, timeout: float = 5.0
    ) -> ControlPlane:
        """Returns that of `host:port`, or of a URL without a path.

        With `tls`, `host:port` is one with TLS. Raises `ConfigError`, also for a token that would
        be sent unencrypted to another machine.
        """
        try:
            default = "http" if tls is None else "https"
            parts = urlsplit(target if "://" in target else f"{default}://{target}")
            host, port = parts.hostname, parts.port
        except ValueError as problem:
            raise _wrong_target(target, str(problem)) from None
        if parts.scheme not in ("http", "https"):
            raise _wrong_target(target, f"{parts.scheme!r} is no scheme of HTTP")
        if not host or port is None:
            raise _wrong_target(target, f"it has no {'port' if host else 'host'}")
        if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
            raise _wrong_target(target, "it has more than a host and a port")
        if parts.scheme == "http":
            if tls is not None:
                raise _wrong_target(target, "TLS needs https, not http")
            if token is not None and not is_local(parts.netloc):
                raise _wrong_target(target, "the token would be sent unencrypted; use https")
            return cls(host, port, None, token, timeout)
        return cls(host, port, tls or TLS(), token, timeout)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def status(self) -> dict[str, Any]:
        """Returns the document of `/api/v1/status`.

        Raises `ServerUnavailableError` if there is no answer, and `ProtocolError` if the answer is
        not that of a server with this API.
        """
        code, document = self._get("/api/v1/status")
        if code == http.client.OK and _is_status(document):
            return dict(document)
        if code == http.client.NOT_FOUND:
            raise self._without_status()
        problem = document.get("error") if isinstance(document, dict) else None
        if code in _REFUSALS and problem:
            raise _REFUSALS[code](f"{self.url}: {problem}", target=self.url)
        raise ProtocolError(f"{self.url}: {problem or self._not_infeed(code)}", target=self.url)

    def _without_status(self) -> ProtocolError:
        """Returns the error for a server that does not know the path."""
        code, index = self._get("/")
        if not (isinstance(index, dict) and index.get("server") == "infeed"):
            return ProtocolError(f"{self.url}: {self._not_infeed(code)}", target=self.url)
        return ProtocolError(
            f"{self.url}: infeed {index.get('version')} has no /api/v1/status here: it is older "
            "than this command, or is a dispatcher or worker; see "
            f"{self.url}/metrics",
            target=self.url,
        )

    def _not_infeed(self, code: int) -> str:
        return f"no control plane of infeed: /api/v1/status answers {code}; give that of --http"

    def _get(self, path: str) -> tuple[int, Any]:
        """Returns the status code, and the JSON of the answer or None."""
        connection = self._connect()
        try:
            connection.connect()
            sock: socket.socket = connection.sock
        except OSError as problem:
            connection.close()
            raise self._unavailable(problem) from None
        with contextlib.closing(connection), _bounded(sock, self.timeout) as expired:
            try:
                found = self._request(connection, path)
            except (ProtocolError, ServerUnavailableError):
                if not expired.is_set():
                    raise
            if expired.is_set():  # an answer that was cut looks complete
                raise self._unavailable(TimeoutError())
        return found

    def _request(self, connection: http.client.HTTPConnection, path: str) -> tuple[int, Any]:
        try:
            headers = {"accept": "application/json"}
            if self.token is not None:
                headers["authorization"] = f"Bearer {self.token}"
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read(_MAX_BYTES + 1)
        except http.client.HTTPException as problem:
            text = f"the answer is not HTTP ({type(problem).__name__}); {_TRAINERS_PORT}"
            raise ProtocolError(f"{self.url}: {text}", target=self.url) from None
        except ConnectionResetError:
            text = f"it closes the connection without an answer; {_TRAINERS_PORT}"
            raise ProtocolError(f"{self.url}: {text}", target=self.url) from None
        except OSError as problem:
            raise self._unavailable(problem) from None
        try:
            return response.status, json.loads(body) if len(body) <= _MAX_BYTES else None
        except (ValueError, RecursionError):  # it is nested deeper than the interpreter's stack
            return response.status, None

    def _connect(self) -> http.client.HTTPConnection:
        if self.tls:
            context = self.tls.context()
            context.set_alpn_protocols(["http/1.1"])
            return _HTTPSConnection(
                self.host, self.port, self.timeout, context, self.tls.server_name
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def _unavailable(self, problem: OSError) -> ServerUnavailableError:
        text = "no answer" if isinstance(problem, TimeoutError) else problem_of(problem)
        if isinstance(problem, ssl.SSLCertVerificationError):
            text = f"its certificate is refused: {problem.verify_message}"
        within = f" within {self.timeout:g} s" if isinstance(problem, TimeoutError) else ""
        return ServerUnavailableError(
            f"{self.url}: {text}{within}; is infeed serve running, with this --http?",
            target=self.url,
        )


@contextlib.contextmanager
def _bounded(sock: socket.socket, seconds: float) -> Iterator[threading.Event]:
    """Ends the connection after some seconds, and sets the event that it yields.

    The socket's own timeout is for each read: an answer that comes byte by byte would never end.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not the method that ends TLS

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


class _HTTPSConnection(http.client.HTTPSConnection):
    """A connection to a server whose certificate may have another name than its host."""

    def __init__(
        self, host: str, port: int, timeout: float, context: ssl.SSLContext, name: str | None
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls = context
        self._name = name or host

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _is_status(document: Any) -> bool:
    return isinstance(document, dict) and {"server", "verdict", "pipelines"} <= document.keys()


def _wrong_target(target: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{target!r}: {problem}; give the address of the control plane, such as "
        "http://127.0.0.1:7471",
        target=target,
    )
