"""Sockets of a client: TCP or Unix, with or without TLS."""

from __future__ import annotations

from infeed.http2.socket import ClientSocket
from infeed.http2.tls_config import TLS, certificate_name


def create_socket(address: str, name: str, tls: TLS | None) -> ClientSocket:
    """Creates a socket for an address, with TLS if there are options for it.

    `name` is the address as the user wrote it: the certificate must be valid for its host, whatever
    hosts the name resolves to. Raises `ConfigError` for an invalid file.
    """
    if tls is None:
        return ClientSocket(address)
    from infeed.http2.tls_socket import TLSClientSocket  # noqa: PLC0415 - loads ssl

    return TLSClientSocket(address, tls.context(), certificate_name(tls, name))
