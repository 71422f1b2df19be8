"""Targets in gRPC's syntax."""

from __future__ import annotations

import contextlib
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.http2.target import (
    authority,
    expand_hosts,
    host_name,
    is_local,
    is_unix,
    parse_target,
    resolve,
)
from infeed.shared.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("host:1", ("host:1",)),
        (" a:1 ,b:2,, ", ("a:1", "b:2")),
        ("dns:///a.b:7470", ("dns:///a.b:7470",)),
        ("[::1]:80", ("[::1]:80",)),
        ("unix:/run/a.sock,unix:///b", ("unix:/run/a.sock", "unix:///b")),
        ("a:0,a:65535", ("a:0", "a:65535")),
        ("unix:///" + "a" * 106, ("unix:///" + "a" * 106,)),
    ],
)
def test_parse_target(target: str, addresses: tuple[str, ...]) -> None:
    assert parse_target(target) == addresses


@pytest.mark.parametrize(
    "target",
    [
        *("", " , ", "host", "dns:///host", "dns:7470", "host:http", "a:1,b", ":80", "a:"),
        *("a:65536", "a:-1", "a:1.5", "a:" + "9" * 5000, "unix:/a\0b", "a\0b:1", "unix://"),
        "unix:/" + "a" * 107,
    ],
)
def test_invalid_targets_are_refused(target: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_target(target)


# All of Unicode would be read from its tables first, for seconds.
LETTERS = string.printable + "\0\x7f\x80\xa0\xb2\xe9\xdf\u0130\u0660\u2028\uff11\U0010ffff"


@given(st.text(LETTERS, max_size=30))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequestError):
        addresses = parse_target(text)
        assert addresses
        assert all(map(authority, addresses))


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("unix:/run/a.sock", "/run/a.sock"),
        ("unix:///run/a.sock", "/run/a.sock"),
        ("unix:a.sock", "a.sock"),
    ],
)
def test_resolve_unix_socket(address: str, path: str) -> None:
    assert is_unix(address)
    assert resolve(address) == [(socket.AF_UNIX, path)]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("host:1", "host"),
        ("dns:///a.b:7470", "a.b"),
        ("dns://8.8.8.8/a:1", "a"),
        ("[::1]:80", "::1"),
        ("unix:/run/a.sock", "localhost"),
    ],
)
def test_host_name(address: str, name: str) -> None:
    assert host_name(address) == name


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("localhost:1", True),
        ("127.0.0.1:1", True),
        ("127.255.255.254:1", True),
        ("[::1]:1", True),
        ("dns:///localhost:1", True),
        ("unix:/a", True),
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
        # Some resolvers map these to this machine, but not all.
        ("127.1:1", False),
        ("2130706433:1", False),
        ("0x7f000001:1", False),
        ("ip6-localhost:1", False),
    ],
)
def test_is_local(address: str, local: bool) -> None:
    assert is_local(address) == local


def test_expand_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(name: str, port: int, **_: object) -> list[object]:
        assert name == "infeed.example.org"
        families = (
            (socket.AF_INET, "10.0.0.2"),
            (socket.AF_INET, "10.0.0.1"),
            (socket.AF_INET6, "fd00::1"),
        )
        return [(family, socket.SOCK_STREAM, 6, "", (ip, port)) for family, ip in families]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert expand_hosts("dns:///infeed.example.org:7") == ["10.0.0.1:7", "10.0.0.2:7"]
