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
