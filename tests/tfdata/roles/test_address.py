"""Tests of advertised addresses: parsing and derivation."""

from __future__ import annotations

import pytest
from tests.tfdata.conftest import non_loopback_host

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_tfdata.roles import address as module
from infeed_tfdata.roles.address import derive, parse_advertise


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("worker-0.workers", Address("worker-0.workers", 0)),
        ("10.0.0.3", Address("10.0.0.3", 0)),
        ("10.0.0.3:18473", Address("10.0.0.3", 18473)),
        ("[fd00::3]", Address("fd00::3", 0)),
        ("fd00::3", Address("fd00::3", 0)),
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


def test_wildcard_address_derives_from_default_route() -> None:
    host = non_loopback_host()
    assert derive(Address("0.0.0.0", 7472)) == Address(host, 7472)
    assert derive(Address("::", 7472)).host != "::"


def test_wildcard_address_without_route_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"this host has no route to no\.such\.host\.invalid:1;"):
        derive(Address("0.0.0.0", 1), "no.such.host.invalid:1")
    monkeypatch.setattr(module, "_source_host", lambda peer: None)
    with pytest.raises(ConfigError, match=r"no route to any other; give --advertise HOST"):
        derive(Address("0.0.0.0", 1))
