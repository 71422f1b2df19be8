"""Requests to the control plane of a server, the HTTP address of `infeed serve --http`."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from infeed.cli.output import problem_of
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

_TRAINERS_PORT = (
    "it may be the address for trainers; give the address of --http, which infeed serve prints "
    "after it: serving on HOST:PORT (http HOST:PORT). With --http-tls, the address begins with "
    "https://"
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
    """Seconds that a connection may take, and each part of an answer."""

    @classmethod
    def parse(
        cls, target: str, tls: TLS | None = None, token: str | None = None, timeout: float = 5.0
    ) -> ControlPlane:
        """Returns the control plane of `host:port`, or of a URL without a path.

        With `tls`, `host:port` uses TLS. Raises `ConfigError`, also for a token that would
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
        not from a server with this API.
        """
        code, document = self._get("/api/v1/status")
        if code == http.client.OK and {"server", "verdict", "pipelines"} <= document.keys():
            return document
        text = (
            f"no control plane of infeed: /api/v1/status answers {code}; give the address of --http"
        )
        problem = document.get("error")
        error = _REFUSALS.get(code, ProtocolError) if problem else ProtocolError
        if code == http.client.NOT_FOUND:
            problem = f"{text} of infeed serve: a dispatcher or worker has no status"
        raise error(f"{self.url}: {problem or text}", target=self.url)

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Returns the status code, and the JSON of the answer; empty if it is another document."""
        headers = {"accept": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        try:
            connection = self._connect()
        except OSError as problem:
            raise self._unavailable(problem) from None
        with contextlib.closing(connection):
            try:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                body = response.read()
            except ConnectionResetError:
                raise self._not_http("it closes the connection without an answer") from None
            except http.client.HTTPException as problem:
                name = type(problem).__name__
                raise self._not_http(f"the answer is not HTTP ({name})") from None
            except OSError as problem:
                raise self._unavailable(problem) from None
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        return response.status, document if isinstance(document, dict) else {}

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        connection.connect()
        if self.tls is not None:
            context = self.tls.context()
            context.set_alpn_protocols(["http/1.1"])
            # The certificate may have another name than the host.
            name = self.tls.server_name or self.host
            connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
        return connection

    def _not_http(self, problem: str) -> ProtocolError:
        return ProtocolError(f"{self.url}: {problem}; {_TRAINERS_PORT}", target=self.url)

    def _unavailable(self, problem: OSError) -> ServerUnavailableError:
        text = problem_of(problem)
        if isinstance(problem, TimeoutError):
            text = f"no answer within {self.timeout:g} s"
        elif isinstance(problem, ssl.SSLCertVerificationError):
            text = f"its certificate is refused: {problem.verify_message}"
        return ServerUnavailableError(
            f"{self.url}: {text}; is infeed serve running, with this --http?", target=self.url
        )


def _wrong_target(target: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{target!r}: {problem}; give the address of the control plane, such as "
        "http://127.0.0.1:7471",
        target=target,
    )
