"""The address that others are told."""

from __future__ import annotations

import pytest
from tests.server.cluster.conftest import other_host

from infeed.errors import ConfigError
from infeed_server.cluster import advertise
from infeed_server.cluster.advertise import derive, parse_advertise
from infeed_server.config.address import Address


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
def test_what_is_said(text: str, address: Address) -> None:
    assert parse_advertise(text) == address


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.3:0", "give HOST, for the port that is listened on"),
        ("unix:/run/x", "give HOST"),
        ("host:port", "not of the form host:port"),
        ("0.0.0.0", "nobody can connect to that"),
        ("[::]:8473", "nobody can connect to that"),
        ("", "nobody can connect to that"),
    ],
)
def test_what_cannot_be(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_advertise(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.3", "::1"])
def test_a_host_of_its_own_is_itself(host: str) -> None:
    assert derive(Address(host, 8473), "10.9.9.9:1") == Address(host, 8473)


def test_every_address_is_that_of_the_route() -> None:
    everywhere = Address("0.0.0.0", 8473)
    assert derive(everywhere, "127.0.0.1:8472") == Address("127.0.0.1", 8473)
    assert derive(everywhere, "[::1]:8472") == Address("::1", 8473)
    assert derive(Address("::", 8473), "127.0.0.1:8472") == Address("127.0.0.1", 8473)


def test_without_anybody_it_is_that_of_the_default_route() -> None:
    host = other_host()
    assert derive(Address("0.0.0.0", 8472)) == Address(host, 8472)
    assert derive(Address("::", 8472)).host != "::"


def test_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no route to no\.such\.host\.invalid:1 that would tell"):
        derive(Address("0.0.0.0", 1), "no.such.host.invalid:1")
    monkeypatch.setattr(advertise, "_source", lambda toward: None)
    with pytest.raises(ConfigError, match=r"no route to any other that.*; give --advertise HOST"):
        derive(Address("0.0.0.0", 1))
