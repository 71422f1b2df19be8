"""Tests of `harness/ports.py`."""

from __future__ import annotations

import socket

import pytest
from tests.harness.ports import ReservedPort

OTHER = "127.0.0.2"


@pytest.mark.parametrize("host", ["127.0.0.1", OTHER, ""])
def test_only_a_server_that_shares_its_address_takes_the_port(host: str) -> None:
    with ReservedPort() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, port.number))
        with socket.create_server((host, port.number)):  # with SO_REUSEADDR
            socket.create_connection((host or OTHER, port.number), 10).close()


def test_port_is_reserved_in_both_families() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this system has no IPv6")
    with (
        ReservedPort() as port,
        socket.socket(socket.AF_INET6) as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind(("::1", port.number))


def test_connections_are_refused_while_no_server_listens() -> None:
    with ReservedPort() as port:
        host, _, number = port.address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(number)), 10)
