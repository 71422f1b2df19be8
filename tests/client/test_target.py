"""Targets, as gRPC writes them."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import InvalidRequestError
from infeed.target import authority, is_unix, parse_target, resolve


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("host:1", ("host:1",)),
        (" a:1 ,b:2,, ", ("a:1", "b:2")),
        ("dns:///a.b:8470", ("dns:///a.b:8470",)),
        ("dns://8.8.8.8/a:1,ipv4:127.0.0.1:2", ("dns://8.8.8.8/a:1", "ipv4:127.0.0.1:2")),
        ("[::1]:80,ipv6:[::1]:81", ("[::1]:80", "ipv6:[::1]:81")),
        ("unix:/run/a.sock,unix:///b", ("unix:/run/a.sock", "unix:///b")),
        ("unix-abstract:name", ("unix-abstract:name",)),
        ("a:0,a:65535", ("a:0", "a:65535")),
    ],
)
def test_targets(target: str, addresses: tuple[str, ...]) -> None:
    assert parse_target(target) == addresses


@pytest.mark.parametrize(
    "target",
    [
        *("", " , ", "host", "dns:///host", "dns:8470", "host:http", "a:1,b", ":80", "a:"),
        *("a:65536", "a:-1", "a:1.5", "a:" + "9" * 5000, "unix:/a\0b", "a\0b:1"),
    ],
)
def test_targets_that_make_no_sense(target: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_target(target)


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequestError):
        addresses = parse_target(text)
        assert addresses
        assert all(map(authority, addresses))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("host:1", "host:1"),
        ("dns:///a.b:8470", "a.b:8470"),
        ("dns://8.8.8.8/a:1", "a:1"),
        ("dns:a:1", "a:1"),
        ("ipv4:127.0.0.1:2", "127.0.0.1:2"),
        ("[::1]:80", "[::1]:80"),
        ("ipv6:[::1]:80", "[::1]:80"),
        ("unix:/run/a.sock", "localhost"),
        ("unix-abstract:a", "localhost"),
    ],
)
def test_authority(address: str, expected: str) -> None:
    assert authority(address) == expected


@pytest.mark.parametrize("address", ["127.0.0.1:7", "ipv4:127.0.0.1:7", "dns:///127.0.0.1:7"])
def test_addresses_of_version_4(address: str) -> None:
    assert resolve(address) == [(socket.AF_INET, ("127.0.0.1", 7))]


@pytest.mark.parametrize("address", ["[::1]:7", "ipv6:[::1]:7"])
def test_addresses_of_version_6(address: str) -> None:
    assert resolve(address) == [(socket.AF_INET6, ("::1", 7))]


def test_names() -> None:
    found = resolve("localhost:7")
    assert found
    assert {family for family, _ in found} <= {socket.AF_INET, socket.AF_INET6}


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("unix:/run/a.sock", "/run/a.sock"),
        ("unix:///run/a.sock", "/run/a.sock"),
        ("unix:a.sock", "a.sock"),
        ("unix-abstract:a", "\0a"),
    ],
)
def test_unix_sockets(address: str, path: str) -> None:
    assert is_unix(address)
    assert resolve(address) == [(socket.AF_UNIX, path)]


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 70, "\u00e9" * 70])
def test_names_of_no_host(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        resolve(f"{host}:1")
