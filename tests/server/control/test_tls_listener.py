"""Tests of `control/tls_listener.py`, with uvicorn's server."""

from __future__ import annotations

import errno
import gc
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.harness.waiting import wait_until

from infeed_server.control import http_server, tls_listener
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.http_server import ControlServer


@pytest.fixture
def server(
    state: ControlState, pki: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ControlServer]:
    # A handshake takes long on a busy machine.
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_SECONDS", 300.0)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki.server, pki.server_key)
    with ControlServer(create_app(state), "127.0.0.1", 0, tls) as server:
        yield server


def status(server: ControlServer, pki: Any) -> int:
    trusted = ssl.create_default_context(cafile=str(pki.ca))
    url = f"https://{server.address}/livez"
    with urllib.request.urlopen(url, timeout=300, context=trusted) as response:
        return int(response.status)


def is_closed(peer: socket.socket) -> bool:
    peer.settimeout(0.01)
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_a_handshake_too_many_ends_the_oldest(
    server: ControlServer, pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "MAX_HANDSHAKES", 3)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(5)
        ]
        for peer in silent[:2]:
            wait_until(lambda peer=peer: is_closed(peer), "the oldest handshakes end")
        assert not any(map(is_closed, silent[2:]))
        assert status(server, pki) == 200  # which takes the turn of another one
        wait_until(lambda: is_closed(silent[2]), "the next one ends")
        assert not any(map(is_closed, silent[3:]))


def test_peers_without_tls_do_no_harm(
    server: ControlServer, pki: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        wait_until(lambda: is_closed_after_all(peer), "the connection ends")
    assert status(server, pki) == 200
    gc.collect()  # asyncio logs the exception of a lost task
    assert not caplog.records


def is_closed_after_all(peer: socket.socket) -> bool:
    """Reads what comes, such as an alert; returns whether the connection has ended."""
    peer.settimeout(0.01)
    try:
        while peer.recv(100):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_connections_are_accepted_again_after_a_failure(
    state: ControlState, pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "_RETRY_SECONDS", 0.01)
    failures: list[OSError] = []

    class Listener(socket.socket):
        def accept(self) -> Any:
            if len(failures) < 2:
                failures.append(OSError(errno.EMFILE, "too many open files"))
                raise failures[-1]
            return super().accept()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki.server, pki.server_key)
    server = ControlServer(create_app(state), "127.0.0.1", 0, tls)
    server._socket = Listener(fileno=server._socket.detach())
    with server:
        assert status(server, pki) == 200
    assert len(failures) == 2


def test_open_handshakes_do_not_keep_the_server(server: ControlServer, pki: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        assert status(server, pki) == 200  # so that the first one has been accepted
        server.stop()
        wait_until(lambda: is_closed(silent), "the handshake ends")
    wait_until(lambda: not server._thread.is_alive(), "the server ends")
