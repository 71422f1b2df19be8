"""TLS engine: two ends of a connection in memory, with their bytes carried by hand."""

from __future__ import annotations

import os
import ssl
from typing import Any

import pytest

from infeed.http2.tls_config import TLS
from infeed.http2.tls_engine import EOF, TLSEngine


def server_context(pki: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server, pki.server_key)
    context.set_alpn_protocols(["h2"])
    return context


def carry(sender: TLSEngine, receiver: TLSEngine, size: int | None = None) -> bytes:
    """Carries the sender's output to the receiver, in pieces of at most `size` bytes."""
    data = sender.take()
    for begin in range(0, len(data), size or len(data) or 1):
        receiver.feed(memoryview(data[begin : begin + (size or len(data))]))
    return data


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def ends(pki: Any, request: pytest.FixtureRequest) -> tuple[TLSEngine, TLSEngine]:
    """The client's and the server's end, after the handshake."""
    context = server_context(pki)
    context.minimum_version = context.maximum_version = request.param
    client = TLSEngine(TLS(ca=pki.ca).context(), server_name="127.0.0.1")
    server = TLSEngine(context, server_side=True)
    done = [False, False]
    while not all(done):
        done[0] = client.handshake()
        carry(client, server)
        done[1] = server.handshake()
        carry(server, client)
    return client, server


def read(engine: TLSEngine, size: int) -> bytes | int | None:
    into = bytearray(size)
    count = engine.read(memoryview(into))
    return bytes(into[:count]) if count else count


def test_alpn_is_negotiated(ends: tuple[TLSEngine, TLSEngine]) -> None:
    client, server = ends
    assert client.protocol == server.protocol == "h2"
    assert client.pending == server.pending == 0


@pytest.mark.parametrize("size", [1, 7, 4096, None])
def test_data_arrives_for_any_size_of_pieces(
    ends: tuple[TLSEngine, TLSEngine], size: int | None
) -> None:
    client, server = ends
    data = os.urandom(50_000 if size == 1 else 200_000)
    for sender, receiver in (ends, (server, client)):
        assert read(receiver, 9) is None
        sender.write(memoryview(data))
        assert carry(sender, receiver, size).find(data[:16]) == -1
        received = bytearray()
        while len(received) < len(data):
            part = read(receiver, 30_000)
            assert isinstance(part, bytes)
            received += part
        assert received == data
        assert read(receiver, 9) is None


def test_read_returns_several_records_at_once(ends: tuple[TLSEngine, TLSEngine]) -> None:
    client, server = ends
    for piece in (b"a" * 20_000, b"b", b"c" * 40_000):  # several records, of several sizes
        client.write(memoryview(piece))
    carry(client, server)
    assert read(server, 100_000) == b"a" * 20_000 + b"b" + b"c" * 40_000


def test_incomplete_record_is_not_read(ends: tuple[TLSEngine, TLSEngine]) -> None:
    client, server = ends
    client.write(memoryview(b"x" * 1000))
    data = client.take()
    server.feed(memoryview(data[:-1]))
    assert read(server, 1000) is None
    server.feed(memoryview(data[-1:]))
    assert read(server, 400) == b"x" * 400
    assert read(server, 1000) == b"x" * 600


def test_empty_write_sends_nothing(ends: tuple[TLSEngine, TLSEngine]) -> None:
    client, _ = ends
    client.write(memoryview(b""))
    assert client.pending == 0
    assert client.take() == b""


def test_end_follows_the_data(ends: tuple[TLSEngine, TLSEngine]) -> None:
    client, server = ends
    client.write(memoryview(b"last"))
    carry(client, server)
    server.feed(memoryview(b""))
    assert read(server, 9) == b"last"
    assert read(server, 9) == EOF
    assert read(server, 9) == EOF


def test_changed_record_is_refused(ends: tuple[TLSEngine, TLSEngine]) -> None:
    client, server = ends
    client.write(memoryview(b"good"))
    carry(client, server)
    client.write(memoryview(b"changed" * 100))
    data = bytearray(client.take())
    data[-1] ^= 1
    server.feed(memoryview(data))
    assert read(server, 99) == b"good"  # the data before it
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            read(server, 99)
    assert server.pending  # an alert for the peer
    carry(server, client)
    with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
        read(client, 9)


@pytest.mark.parametrize("twist", ["repeated", "swapped", "left out"])
def test_records_out_of_order_are_refused(ends: tuple[TLSEngine, TLSEngine], twist: str) -> None:
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


def test_connection_closed_during_the_handshake(pki: Any) -> None:
    server = TLSEngine(server_context(pki), server_side=True)
    assert not server.handshake()
    server.feed(memoryview(b""))
    with pytest.raises(ssl.SSLEOFError):
        server.handshake()
