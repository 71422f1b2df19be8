"""Errors of a call's connection, as errors of infeed."""

from __future__ import annotations

import os

from infeed.http2.connection import Http2ProtocolError
from infeed.http2.receiver import ConnectionLostError
from infeed.http2.socket import TLSVerificationError
from infeed.http2.target import is_unix
from infeed.http2.tls_config import TLS
from infeed.shared.errors import (
    AuthenticationError,
    InfeedError,
    ProtocolError,
    ServerUnavailableError,
)

CONNECTION_ERRORS = (Http2ProtocolError, ConnectionLostError, OSError)
"""What a connection raises."""

_CLOSED = (ConnectionLostError, ConnectionResetError, BrokenPipeError)


def map_connection_error(error: Exception, server: str, tls_remedy: str) -> InfeedError:
    """Returns the infeed error of a server for an error of its connection."""
    if isinstance(error, Http2ProtocolError):
        message = f"{server} is not an infeed server: {error}{tls_remedy}"
        return ProtocolError(message, target=server)
    if isinstance(error, TLSVerificationError):
        return AuthenticationError(str(error), target=server)
    remedy = tls_remedy if isinstance(error, _CLOSED) else ""
    if isinstance(error, PermissionError) and is_unix(server):
        # It asks for the right to write to the socket, and to enter the folders above.
        remedy = f"; connect as the server's user, this process has uid {os.geteuid()}"
    message = f"no server at {server}: {_reason(error)}{remedy}"
    return ServerUnavailableError(message, target=server)


def tls_remedy(tls: TLS | None) -> str:
    """Returns a remedy for a peer that never spoke HTTP/2: it may be a port with TLS, which answers
    in HTTP/1 (nginx) or not at all (grpcio, haproxy), or want another certificate."""
    if tls is None:
        return "; if this port requires TLS, set tls=True or TLS(ca=...)"
    if tls.cert is None:
        return "; if this port requires a client certificate, set TLS(cert=..., key=...)"
    return "; this port may not accept the client certificate"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
