"""Whether an advertised address leads to who listens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests.server.cluster.conftest import LOCAL, free_port, other_host

from infeed_server.cluster import reach
from infeed_server.cluster.reach import elsewhere
from infeed_server.config.address import Address


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_SECONDS", 1.0)


def test_addresses_that_lead_here() -> None:
    port = free_port()
    assert elsewhere(Address("127.0.0.1", port), Address("127.0.0.1", port)) is None
    assert elsewhere(Address("127.0.0.1", port), Address("localhost", 0)) is None
    assert elsewhere(LOCAL, LOCAL) is None
    assert elsewhere(Address("::1", 0), Address("::1", 0)) is None
    assert elsewhere(Address("0.0.0.0", 0), Address(other_host(), 0)) is None


def test_addresses_that_do_not() -> None:
    nobody = Address("127.0.0.1", free_port())
    assert elsewhere(LOCAL, nobody) == "Connection refused"
    assert elsewhere(LOCAL, Address(other_host(), 0)) == "Connection refused"
    assert "not known" in str(elsewhere(LOCAL, Address("no.such.host.invalid", 0)))
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = Address("127.0.0.1", other.getsockname()[1])
        assert elsewhere(LOCAL, taken) == "somebody else answers there"


def test_an_address_that_is_passed_on() -> None:
    # As a port that a container maps.
    with closing(socket.create_server(("127.0.0.1", 0))) as mapped:
        port = free_port()

        def pass_on() -> None:
            with (
                closing(mapped.accept()[0]) as caller,
                closing(socket.create_connection(("127.0.0.1", port))) as called,
            ):
                called.sendall(caller.recv(1000))

        thread = threading.Thread(target=pass_on)
        thread.start()
        told = Address("127.0.0.1", mapped.getsockname()[1])
        assert elsewhere(Address("127.0.0.1", port), told) is None
        thread.join()


def test_a_stranger_at_the_listener_does_not_stand_for_the_caller() -> None:
    listen = Address("127.0.0.1", free_port())
    with closing(socket.create_server(("127.0.0.1", 0))) as other, knocking(listen):
        taken = Address("127.0.0.1", other.getsockname()[1])
        assert elsewhere(listen, taken) == "somebody else answers there"


def test_others_who_connect_first_do_no_harm() -> None:
    listen = Address("127.0.0.1", free_port())
    with knocking(listen):
        assert {elsewhere(listen, listen) for _ in range(20)} == {None}


@contextmanager
def knocking(listen: Address) -> Iterator[None]:
    """Strangers who connect all the time."""
    done = threading.Event()

    def intrude() -> None:
        while not done.is_set():
            try:
                with closing(socket.create_connection((listen.host, listen.port))) as stranger:
                    stranger.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            except OSError:
                pass

    thread = threading.Thread(target=intrude)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
