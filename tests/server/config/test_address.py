"""Tests of `config/address.py`."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("127.0.0.1:7470", "127.0.0.1", 7470, "127.0.0.1:7470"),
        ("localhost:0", "localhost", 0, "localhost:0"),
        ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ("::1:80", "::1", 80, "[::1]:80"),
    ],
)
def test_parses_host_and_port(text: str, host: str, port: int, shown: str) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, str(address)) == (host, port, shown)


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", ":80", "[]:80", "host:-1", "host:65536", "host:8²", "host:x"]
)
def test_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form host:port"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("192.0.2.7:1", False),
    ],
)
def test_only_loopback_is_safe_without_tls(text: str, loopback: bool) -> None:
    address = Address.parse(text)
    assert address.is_loopback == loopback
    assert Address.parse_safe("--listen", text, encrypted=False, insecure=True) == address
    assert Address.parse_safe("--listen", text, encrypted=True, insecure=False) == address
    if loopback:
        assert Address.parse_safe("--listen", text, encrypted=False, insecure=False) == address
        return
    for option, remedies in (("--http", ".*--insecure"), ("--listen", ".*--tls-cert.*--insecure")):
        with pytest.raises(ConfigError, match=re.escape(f"{option} {text}: ") + remedies):
            Address.parse_safe(option, text, encrypted=False, insecure=False)


@pytest.mark.parametrize("host", ["no-host.invalid", "a" * 70, "a b"])
def test_unknown_host_is_refused(host: str) -> None:
    address = Address(host, 80)
    for resolve in (lambda: address.is_loopback, address.require_free):
        with pytest.raises(ConfigError, match="no such host"):
            resolve()


def test_taken_port_is_refused() -> None:
    Address("127.0.0.1", 0).require_free()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(ConfigError, match=f"cannot listen on {address}: address already in"):
            address.require_free()
    address.require_free()
    address.require_free()
    with pytest.raises(ConfigError, match="cannot assign requested address"):
        Address("192.0.2.7", 80).require_free()


def test_live_unix_socket_is_refused_and_leftover_is_not(tmp_path: Path, monkeypatch: Any) -> None:
    address = Address.parse(f"unix:{tmp_path}/s")
    assert address.is_loopback
    assert str(address) == f"unix:{tmp_path}/s"
    address.require_free()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
        listener.bind("s")
        listener.listen()
        if len(str(tmp_path)) < 100:
            with pytest.raises(ConfigError, match=r"already in use; stop .* another address$"):
                address.require_free()
    address.require_free()
    with pytest.raises(ConfigError, match="no folder"):
        Address.parse(f"unix:{tmp_path}/nowhere/s").require_free()


def test_folder_that_the_user_cannot_write_to_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no folder \. that uid 10001 can write to; create it"):
        Address("unix:s", 0).require_free()
    assert asked == [(Path(), os.W_OK | os.X_OK)]


def test_path_that_cannot_be_a_socket_is_refused(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path, "not a socket"),
        (tmp_path / ("x" * 120), "bytes is too long for a socket; use a shorter one"),
    ):
        with pytest.raises(ConfigError, match=words):
            Address.parse(f"unix:{path}").require_free()
