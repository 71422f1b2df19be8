"""Tests of advertised addresses: parsing, derivation, reachability."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing

import pytest
from tests.plugins.service.conftest import LOCAL, non_loopback_host

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_service.roles import address as module
from infeed_service.roles.address import derive, find_reach_problem, parse_advertise


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("worker-0.workers", Address("worker-0.workers", 0)),
        ("10.0.0.3", Address("10.0.0.3", 0)),
        ("10.0.0.3:18473", Address("10.0.0.3", 18473)),
        ("[fd00::3]", Address("fd00::3", 0)),
        ("[fd00::3]:18473", Address("fd00::3", 18473)),
    ],
)
def test_advertise_option_is_parsed(text: str, address: Address) -> None:
    assert parse_advertise(text) == address


@pytest.mark.parametrize(
    "text", ["10.0.0.3:0", "unix:/run/x", "host:port", "0.0.0.0", "[::]:7473", ""]
)
def test_invalid_advertise_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--advertise"):
        parse_advertise(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.3", "::1"])
def test_specific_host_is_advertised_as_it_is(host: str) -> None:
    assert derive(Address(host, 7473), "10.9.9.9:1") == Address(host, 7473)


def test_wildcard_address_derives_from_route_to_peer() -> None:
    wildcard = Address("0.0.0.0", 7473)
    assert derive(wildcard, "127.0.0.1:7472") == Address("127.0.0.1", 7473)
    assert derive(wildcard, "[::1]:7472") == Address("::1", 7473)
    assert derive(Address("::", 7473), "127.0.0.1:7472") == Address("127.0.0.1", 7473)


def test_wildcard_address_without_route_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"this host has no route to no\.such\.host\.invalid:1;"):
        derive(Address("0.0.0.0", 1), "no.such.host.invalid:1")
    monkeypatch.setattr(module, "_PUBLIC_ADDRESSES", ())
    with pytest.raises(ConfigError, match=r"no route to any other; give --advertise HOST"):
        derive(Address("0.0.0.0", 1))


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_TIMEOUT_SECONDS", 1.0)


def test_address_of_the_listener_is_reachable(new_listen: Callable[[], Address]) -> None:
    listen = new_listen()
    assert find_reach_problem(listen, listen) is None
    assert find_reach_problem(listen, Address("localhost", 0)) is None
    assert find_reach_problem(Address("::1", 0), Address("::1", 0)) is None
    assert find_reach_problem(Address("0.0.0.0", 0), Address(non_loopback_host(), 0)) is None


@pytest.mark.usefixtures("short_timeout")
def test_unreachable_address_has_a_reason(new_listen: Callable[[], Address]) -> None:
    assert find_reach_problem(LOCAL, new_listen()) == "Connection refused"
    assert "not known" in str(find_reach_problem(LOCAL, Address("no.such.host.invalid", 0)))
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        occupied = Address("127.0.0.1", other.getsockname()[1])
        assert find_reach_problem(LOCAL, occupied) == "another process answers there"
