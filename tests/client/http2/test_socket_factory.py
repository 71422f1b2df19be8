"""Sockets by their options: TLS or not, and the name that the certificate must be valid for."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.http2.socket import ClientSocket
from infeed.http2.socket_factory import create_socket
from infeed.http2.tls_config import TLS
from infeed.http2.tls_socket import TLSClientSocket
from infeed.shared.errors import ConfigError


def test_socket_has_tls_if_there_are_options(pki: Any) -> None:
    assert type(create_socket("a:1", "a:1", None)) is ClientSocket
    for tls in (TLS(), TLS(ca=pki.ca)):
        assert type(create_socket("a:1", "a:1", tls)) is TLSClientSocket


def test_certificate_is_for_the_name_and_not_for_the_address() -> None:
    socket: Any = create_socket("10.1.2.3:1", "dns:///infeed.example.org:1", TLS())
    assert socket._server_name == "infeed.example.org"
    assert socket._address == "10.1.2.3:1"


def test_invalid_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tls: ca /none\.pem: no such file"):
        create_socket("a:1", "a:1", TLS(ca="/none.pem"))
