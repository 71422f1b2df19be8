"""Requests to a server's control plane, the HTTP address of `infeed serve --http`."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from infeed.cli.output import problem_of
from infeed.http2.target import host_name, is_local, parse_target
from infeed.http2.tls_config import TLS
from infeed.shared.errors import (
    AuthenticationError,
    ConfigError,
    InfeedError,
    PermissionDeniedError,
    ProtocolError,
    ServerUnavailableError,
)

_TIMEOUT_SECONDS = 5.0
"""Seconds for a connection, and for each part of an answer: with more, failures show later."""

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared
"""Hosts of a server that listens on all interfaces."""

_REFUSALS: dict[int, type[InfeedError]] = {401: AuthenticationError, 403: PermissionDeniedError}


@dataclass(frozen=True)
class ControlPlane:
    """The control plane at an address."""

    host: str
    port: int
    tls: TLS | None = None
    """None for unencrypted requests."""
    token: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, target: str, tls: TLS | None = None, token: str | None = None) -> ControlPlane:
        """Returns the control plane at `host:port` or at a URL without a path.

        With `tls`, `host:port` uses TLS. Raises `ConfigError`, also if a token would be sent
        unencrypted to another machine.
        """
        default = "http" if tls is None else "https"
        parts, port = urlsplit(target if "://" in target else f"{default}://{target}"), None
        with contextlib.suppress(ValueError):
            port = parts.port
        is_encrypted = parts.scheme == "https"
        problem = ""
        if not (parts.hostname and port and parts.scheme in ("http", "https")) or (
            parts.username is not None or parts.path.strip("/") or parts.query
        ):
            problem = "not a URL with only a host and a port"
        elif tls is not None and not is_encrypted:
            problem = "TLS needs https, not http"
        elif token is not None and not (is_encrypted or is_local(parts.netloc)):
            problem = "the token would be sent unencrypted; use https"
        if problem:
            raise ConfigError(
                f"{target!r}: {problem}; give the address of the control plane, such as "
                "http://127.0.0.1:7471",
                target=target,
            )
        assert parts.hostname and port  # noqa: PT018 - for the type checker
        return cls(parts.hostname, port, (tls or TLS()) if is_encrypted else None, token)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def status(self) -> dict[str, Any]:
        """Returns the document of `/api/v1/status`.

        Raises `ServerUnavailableError` without an answer, and `ProtocolError` if the answer does
        not come from a server with this API.
        """
        try:
            code, document = self._get("/api/v1/status")
        except (ConnectionResetError, http.client.HTTPException) as error:
            raise ProtocolError(
                f"{self.url}: the answer is not HTTP ({type(error).__name__}); give the address of "
                "--http, which infeed serve prints as (http HOST:PORT). With --http-tls, begin the "
                "address with https://",
                target=self.url,
            ) from None
        except OSError as error:
            text = problem_of(error)
            if isinstance(error, ssl.SSLCertVerificationError):
                text = f"its certificate is invalid: {error.verify_message}"
            raise ServerUnavailableError(
                f"{self.url}: {text}; is infeed serve running, with this --http?", target=self.url
            ) from None
        if code == http.client.OK and {"server", "verdict", "pipelines"} <= document.keys():
            return document
        problem = document.get("error")
        error_type = _REFUSALS.get(code, ProtocolError) if problem else ProtocolError
        if code == http.client.NOT_FOUND or not problem:
            problem = (
                f"not an infeed control plane: /api/v1/status answered {code}; give the --http "
                "address of infeed serve, since dispatchers and workers have no status"
            )
        raise error_type(f"{self.url}: {problem}", target=self.url)

    @classmethod
    def of_server(cls, target: str, tls: TLS | None, token: str | None) -> ControlPlane | None:
        """Returns the control plane of the server that trainers reach at `target`; None if no such
        server answers.

        Raises `ConfigError` if the server reports no control plane, or one on the loopback of
        another machine.
        """
        from infeed.rpc.channel import GrpcTransport  # noqa: PLC0415 - rarely needed
        from infeed.rpc.credentials import Credentials  # noqa: PLC0415

        try:
            address = parse_target(target)[0]
            credentials = Credentials(token, tls)
            with contextlib.closing(GrpcTransport(address, credentials)) as transport:
                reported = urlsplit(transport.control_plane(_TIMEOUT_SECONDS))
        except InfeedError:
            return None
        if not reported.hostname:
            raise ConfigError(
                f"{target}: the server has no control plane for infeed top to read; start it with "
                "--http HOST:PORT instead of --http off",
                target=target,
            )
        host = reported.hostname
        if host in _WILDCARDS:
            host = host_name(address)
        elif is_local(reported.netloc) and not is_local(address):
            raise ConfigError(
                f"{target}: its control plane is {reported.geturl()}, on its own loopback; run "
                "infeed top there, or serve with an --http that this machine can reach",
                target=target,
            )
        shown = f"[{host}]" if ":" in host else host
        return cls.parse(f"{reported.scheme}://{shown}:{reported.port}", tls, token)

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Returns the status code, and the answer's JSON object; empty if it is something else."""
        headers = {"accept": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.connect()
            if self.tls is not None:
                context = self.tls.context()
                context.set_alpn_protocols(["http/1.1"])
                # The certificate may be for another name.
                name = self.tls.server_name or self.host
                connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read()
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        return response.status, document if isinstance(document, dict) else {}
