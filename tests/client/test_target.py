"""Targets, as gRPC writes them."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import InvalidRequestError
from infeed.target import authority, host, is_local, is_unix, parse_target, resolve, servers


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


# All of Unicode would be read from its tables first, for seconds.
LETTERS = string.printable + "\0\x7f\x80\xa0\xb2\xe9\xdf\u0130\u0660\u2028\uff11\U0010ffff"
texts = st.text(LETTERS, max_size=30)


@given(texts)
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


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 70, "\u00e9" * 70])
def test_names_of_no_host(name: str) -> None:
    with pytest.raises(OSError, match=r"."):
        resolve(f"{name}:1")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("host:1", "host"),
        ("dns:///a.b:8470", "a.b"),
        ("dns://8.8.8.8/a:1", "a"),
        ("ipv4:127.0.0.1:2", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("ipv6:[fe80::1]:80", "fe80::1"),
        ("unix:/run/a.sock", "localhost"),
        ("unix-abstract:a", "localhost"),
    ],
)
def test_hosts(address: str, name: str) -> None:
    assert host(address) == name


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("localhost:1", True),
        ("127.0.0.1:1", True),
        ("127.255.255.254:1", True),
        ("[::1]:1", True),
        ("ipv6:[::1]:1", True),
        ("dns:///localhost:1", True),
        ("unix:/a", True),
        ("unix-abstract:a", True),
        ("128.0.0.1:1", False),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("[::2]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
        ("127.0.0.1@example.org:1", False),
        ("dns://127.0.0.1/example.org:1", False),
        # Resolvers take these for this machine, but not all do.
        ("127.1:1", False),
        ("2130706433:1", False),
        ("0x7f000001:1", False),
        ("ip6-localhost:1", False),
    ],
)
def test_what_stays_on_this_machine(address: str, local: bool) -> None:
    assert is_local(address) == local


@given(texts)
def test_any_target_is_local_or_not(text: str) -> None:
    with contextlib.suppress(InvalidRequestError):
        for address in parse_target(text):
            if is_local(address) and not is_unix(address) and host(address) != "localhost":
                assert ipaddress.ip_address(host(address)).is_loopback


def test_hosts_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def several(name: str, port: int, **_: object) -> list[object]:
        assert name == "infeed.example.org"
        families = (
            (socket.AF_INET, "10.0.0.2"),
            (socket.AF_INET, "10.0.0.1"),
            (
                socket.AF_INET6,
                "fd00::1",
            ),
        )
        return [(family, socket.SOCK_STREAM, 6, "", (where, port)) for family, where in families]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    assert servers("dns:///infeed.example.org:7") == ["10.0.0.1:7", "10.0.0.2:7"]
