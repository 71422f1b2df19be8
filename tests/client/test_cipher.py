"""TLS in memory: two ends of a connection, and what travels between them carried by hand."""

from __future__ import annotations

import os
import ssl
from typing import Any

import pytest

from infeed.cipher import END, Cipher
from infeed.tls import TLS


def server_context(pki: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server, pki.server_key)
    context.set_alpn_protocols(["h2"])
    return context


def carry(sender: Cipher, receiver: Cipher, most: int | None = None) -> bytes:
    """What one has to send, in pieces of `most` bytes at the most."""
    data = sender.take()
    for begin in range(0, len(data), most or len(data) or 1):
        receiver.feed(memoryview(data[begin : begin + (most or len(data))]))
    return data


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def ends(pki: Any, request: pytest.FixtureRequest) -> tuple[Cipher, Cipher]:
    """The trainer's and the server's, which know each other."""
    context = server_context(pki)
    context.minimum_version = context.maximum_version = request.param
    client = Cipher(TLS(ca=pki.ca).context(), server_name="127.0.0.1")
    server = Cipher(context, server_side=True)
    done = [False, False]
    while not all(done):
        done[0] = client.handshake()
        carry(client, server)
        done[1] = server.handshake()
        carry(server, client)
    return client, server


def read(cipher: Cipher, count: int) -> bytes | int | None:
    into = bytearray(count)
    got = cipher.read(memoryview(into))
    return bytes(into[:got]) if got else got


def test_both_know_what_they_speak(ends: tuple[Cipher, Cipher]) -> None:
    client, server = ends
    assert client.protocol == server.protocol == "h2"
    assert client.pending == server.pending == 0


@pytest.mark.parametrize("most", [1, 7, 4096, None])
def test_bytes_arrive_whatever_they_are_carried_in(
    ends: tuple[Cipher, Cipher], most: int | None
) -> None:
    client, server = ends
    data = os.urandom(50_000 if most == 1 else 200_000)
    for sender, receiver in (ends, (server, client)):
        assert read(receiver, 9) is None
        sender.write(memoryview(data))
        assert carry(sender, receiver, most).find(data[:16]) == -1
        got = bytearray()
        while len(got) < len(data):
            some = read(receiver, 30_000)
            assert isinstance(some, bytes)
            got += some
        assert got == data
        assert read(receiver, 9) is None


def test_as_much_as_there_is_comes_at_once(ends: tuple[Cipher, Cipher]) -> None:
    client, server = ends
    for piece in (b"a" * 20_000, b"b", b"c" * 40_000):  # several records, of several sizes
        client.write(memoryview(piece))
    carry(client, server)
    assert read(server, 100_000) == b"a" * 20_000 + b"b" + b"c" * 40_000


def test_a_part_of_a_record_is_no_data(ends: tuple[Cipher, Cipher]) -> None:
    client, server = ends
    client.write(memoryview(b"x" * 1000))
    data = client.take()
    server.feed(memoryview(data[:-1]))
    assert read(server, 1000) is None
    server.feed(memoryview(data[-1:]))
    assert read(server, 400) == b"x" * 400
    assert read(server, 1000) == b"x" * 600


def test_nothing_is_written_of_nothing(ends: tuple[Cipher, Cipher]) -> None:
    client, _ = ends
    client.write(memoryview(b""))
    assert client.pending == 0
    assert client.take() == b""


def test_the_end_comes_behind_the_data(ends: tuple[Cipher, Cipher]) -> None:
    client, server = ends
    client.write(memoryview(b"last"))
    carry(client, server)
    server.feed(memoryview(b""))
    assert read(server, 9) == b"last"
    assert read(server, 9) == END
    assert read(server, 9) == END


def test_a_record_that_was_changed_on_the_way(ends: tuple[Cipher, Cipher]) -> None:
    client, server = ends
    client.write(memoryview(b"good"))
    carry(client, server)
    client.write(memoryview(b"spoilt" * 100))
    data = bytearray(client.take())
    data[-1] ^= 1
    server.feed(memoryview(data))
    assert read(server, 99) == b"good"  # what was sent before it is
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            read(server, 99)
    assert server.pending  # it tells the peer
    carry(server, client)
    with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
        read(client, 9)


@pytest.mark.parametrize("twist", ["repeated", "swapped", "left out"])
def test_records_that_are_not_in_order(ends: tuple[Cipher, Cipher], twist: str) -> None:
    client, server = ends
    records = []
    for text in (b"one", b"two"):
        client.write(memoryview(text))
        records.append(client.take())
    one, two = records
    for record in {"repeated": [one, one], "swapped": [two, one], "left out": [two]}[twist]:
        server.feed(memoryview(record))
    if twist == "repeated":
        assert read(server, 9) == b"one"
    with pytest.raises(ssl.SSLError):
        read(server, 9)


def test_a_handshake_that_ends_early(pki: Any) -> None:
    server = Cipher(server_context(pki), server_side=True)
    assert not server.handshake()
    server.feed(memoryview(b""))
    with pytest.raises(ssl.SSLEOFError):
        server.handshake()
