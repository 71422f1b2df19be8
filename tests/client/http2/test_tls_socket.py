"""TLS client sockets, against OpenSSL's own socket: data arrives both ways, every wait ends, and an
untrusted peer is distinguished from a lost one."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infeed.http2 import tls_socket
from infeed.http2.socket import ClientSocket, TLSVerificationError
from infeed.http2.tls_config import TLS
from infeed.http2.tls_socket import TLSClientSocket, answers_tls

SECONDS = 60.0


def context_of(pki: Any, cert: str = "server", *, alpn: str | None = "h2") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(getattr(pki, cert), getattr(pki, f"{cert}_key"))
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


@pytest.fixture
def secure_peer(pki: Any, peer: Any) -> Callable[..., str]:
    """Starts a server whose script gets the TLS socket after the handshake; the error of a failed
    handshake is added to `errors`."""

    def start(
        script: Callable[[ssl.SSLSocket], None] = lambda tls: None,
        context: ssl.SSLContext | None = None,
        errors: list[Exception] | None = None,
    ) -> str:
        used = context or context_of(pki)

        def play(talk: Any) -> None:
            try:
                tls = used.wrap_socket(talk.socket, server_side=True)
            except OSError as error:
                if errors is None:
                    raise
                errors.append(error)
                return
            with tls:
                tls.settimeout(SECONDS)
                script(tls)

        address: str = peer(play)
        return address

    return start


@pytest.fixture
def new_client(pki: Any) -> Iterator[Callable[..., TLSClientSocket]]:
    sockets: list[TLSClientSocket] = []

    def new(address: str, name: str = "127.0.0.1", tls: TLS | None = None) -> TLSClientSocket:
        sockets.append(TLSClientSocket(address, (tls or TLS(ca=pki.ca)).context(), name))
        return sockets[-1]

    yield new
    for client in sockets:
        client.close()


def receive_exactly(client: TLSClientSocket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        size = client.receive(view[: 1 << 18], SECONDS)
        assert size, f"{len(view)} of {count} bytes are missing"
        view = view[size:]
    return bytes(data)


class Ticking:
    """A clock that advances by one second at each read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.fixture
def drip(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Makes sockets receive these bytes, one a second; returns those not received yet. With `ready`
    there still is a byte at the timeout."""

    def start(data: bytes, *, ready: bool = False) -> list[int]:
        left = list(reversed(data))

        def receive(self: ClientSocket, into: memoryview, timeout: float) -> int:
            if timeout <= 0 and not ready:
                raise TimeoutError
            into[0] = left.pop()
            return 1

        monkeypatch.setattr(ClientSocket, "receive", receive)
        monkeypatch.setattr(tls_socket, "time", Ticking())
        return left

    return start


def take(tls: ssl.SSLSocket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = tls.recv(count - len(data))
        assert part
        data += part
    return bytes(data)


def until_closed(tls: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError):
        while tls.recv(1 << 16):
            pass


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_send_and_receive_at_once(
    pki: Any, secure_peer: Any, new_client: Any, version: ssl.TLSVersion
) -> None:
    context = context_of(pki)
    context.minimum_version = context.maximum_version = version
    up, down = os.urandom(4 << 20), os.urandom(4 << 20)
    sent: list[bytes] = []

    def script(tls: ssl.SSLSocket) -> None:
        # OpenSSL's socket must not be read and written at once, so it alternates.
        data = bytearray()
        for begin in range(0, len(down), 1 << 16):
            tls.sendall(down[begin : begin + (1 << 16)])
            data += take(tls, 1 << 16)
        sent.append(bytes(data))

    client = new_client(secure_peer(script, context))
    client.open()

    def send() -> None:
        for begin in range(0, len(up), 100_000):
            client.send(up[begin : begin + 100_000])

    sender = threading.Thread(target=send)
    sender.start()
    assert receive_exactly(client, len(down)) == down
    sender.join(SECONDS)
    assert client.receive(memoryview(bytearray(9)), SECONDS) == 0
    assert sent == [up]


def test_partial_record_does_not_extend_the_timeout(
    secure_peer: Any, new_client: Any, drip: Any
) -> None:
    """A record is only readable when all of it has arrived."""
    client = new_client(secure_peer(until_closed))
    client.open()
    record_of_16384_bytes = b"\x17\x03\x03\x40\x00" + bytes(16_000)
    left = drip(record_of_16384_bytes, ready=True)
    with pytest.raises(TimeoutError):
        client.receive(memoryview(bytearray(9)), 5.0)
    assert len(left) > 10_000


def silent(talk: Any) -> None:
    while talk.socket.recv(1 << 16):
        pass


def test_slow_handshake_times_out(peer: Any, new_client: Any, drip: Any) -> None:
    client = new_client(peer(silent))
    left = drip(b"\x16\x03\x03\x40\x00\x02\x00" + bytes(500))
    with pytest.raises(TimeoutError):
        client.open(5.0)
    assert len(left) > 400


@pytest.mark.parametrize("abrupt", [False, True])
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x03"])
def test_connection_closed_during_the_handshake(
    first: bytes, abrupt: bool, peer: Any, new_client: Any
) -> None:
    def script(talk: Any) -> None:
        talk.socket.recv(1 << 16 if not abrupt else 1)
        talk.send(first)
        if abrupt:  # as a reset
            talk.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with pytest.raises(ConnectionError, match=r"reset|closed during the TLS handshake") as caught:
        new_client(peer(script)).open()
    assert not isinstance(caught.value, TLSVerificationError)  # which is not retried


HTTP2 = b"\0\0\x12\x04\0\0\0\0\0" + bytes(18)


@pytest.mark.parametrize(
    "sent",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", HTTP2, b"\x17\x03\x03\0\x01x"],
)
def test_peer_without_tls_is_refused(sent: bytes, peer: Any, new_client: Any) -> None:
    def script(talk: Any) -> None:
        talk.send(sent)
        silent(talk)

    client = new_client(address := peer(script))
    with pytest.raises(TLSVerificationError) as caught:
        client.open()
    assert str(caught.value) == (
        f"{address} does not use TLS; leave out tls= or --tls, or configure the server with a "
        "certificate"
    )


def test_server_that_answers_a_handshake_speaks_tls(pki: Any, secure_peer: Any, peer: Any) -> None:
    assert answers_tls(secure_peer(until_closed, context_of(pki, "untrusted")))
    assert not answers_tls(peer(lambda talk: talk.send(HTTP2)))
    assert not answers_tls(peer(lambda talk: None))


@pytest.mark.parametrize("alpn", [None, "http/1.1"])
def test_peer_without_http2_over_tls_is_refused(
    pki: Any, secure_peer: Any, new_client: Any, alpn: str | None
) -> None:
    client = new_client(secure_peer(until_closed, context_of(pki, alpn=alpn)))
    with pytest.raises(TLSVerificationError, match="uses TLS, but not HTTP/2 over it"):
        client.open()


@pytest.mark.parametrize(
    ("cert", "name", "reason"),
    [
        ("server_expired", "127.0.0.1", "certificate has expired; renew it, or check the clocks"),
        ("untrusted", "127.0.0.1", r"get local issuer .*; set .* with TLS\(ca=...\), or --tls-ca$"),
        ("elsewhere", "127.0.0.1", r"IP address mismatch, .*'127.0.0.1'.*TLS\(server_name"),
        ("elsewhere", "localhost", r"Hostname mismatch, .*'localhost'.*TLS\(server_name=...\)"),
        ("untrusted_ca", "127.0.0.1", r"self-signed certificate; set its authority"),
    ],
)
def test_untrusted_server_certificate_is_refused(
    pki: Any, secure_peer: Any, new_client: Any, cert: str, name: str, reason: str
) -> None:
    errors: list[Exception] = []
    address = secure_peer(until_closed, context_of(pki, cert), errors)
    with pytest.raises(TLSVerificationError, match=reason) as caught:
        new_client(address, name).open()
    message = f"the certificate of {address} could not be verified for {name!r}: "
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        (40, "handshake failure"),
        (42, "bad certificate"),
        (45, "certificate expired"),
        (48, "unknown ca"),
        (49, "access denied"),
        (70, "protocol version"),
        (116, "certificate required"),
    ],
)
def test_alert_names_the_refusal(peer: Any, new_client: Any, alert: int, name: str) -> None:
    def script(talk: Any) -> None:
        talk.send(b"\x15\x03\x03\0\x02\x02" + bytes([alert]))
        silent(talk)

    client = new_client(address := peer(script))
    with pytest.raises(TLSVerificationError, match=f"^{address} refused .*{name}; use a client"):
        client.open()


def test_invalid_record_after_the_handshake_is_retryable(
    pki: Any, secure_peer: Any, new_client: Any
) -> None:
    """As from a proxy that responds without TLS: the server may come back."""

    def script(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"good")
        raw = socket.socket(fileno=os.dup(tls.fileno()))
        with raw:
            raw.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        until_closed(tls)

    client = new_client(secure_peer(script))
    client.open()
    assert receive_exactly(client, 4) == b"good"
    with pytest.raises(ConnectionAbortedError, match=r"^TLS failed: "):
        client.receive(memoryview(bytearray(9)), SECONDS)


def test_sends_of_several_threads_are_not_interleaved(secure_peer: Any, new_client: Any) -> None:
    """A client sends requests and acknowledgements; records must be sent in their order."""
    received: list[bytes] = []
    client = new_client(secure_peer(lambda tls: received.append(take(tls, 4 * 50 * 20_000))))
    client.open()

    def send(letter: bytes) -> None:
        for _ in range(50):
            client.send(letter * 20_000)

    threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.receive(memoryview(bytearray(9)), SECONDS) == 0  # the peer has all
    (data,) = received
    pieces = [data[begin : begin + 20_000] for begin in range(0, len(data), 20_000)]
    assert all(piece == piece[:1] * 20_000 for piece in pieces)
    assert all(data.count(letter) == 50 * 20_000 for letter in (b"a", b"b", b"c", b"d"))
