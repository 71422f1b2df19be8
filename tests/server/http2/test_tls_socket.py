"""TLS sockets against OpenSSL's own: data in both directions, timeouts, and refused handshakes."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import h2.connection
import h2.events
import pytest

from infeed.http2.tls_config import TLS
from infeed_server.http2 import tls_socket
from infeed_server.http2.connection import Connection
from infeed_server.http2.frame_budget import POOR_RECORD_RATE
from infeed_server.http2.protocol import FloodError
from infeed_server.http2.socket import HandshakeError, ServerSocket
from infeed_server.http2.stream import Stream
from infeed_server.http2.tls_socket import TLSServerSocket
from infeed_server.runtime.certificate import TLSFiles

TIMEOUT_SECONDS = 60.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Returns both endpoints of a TCP connection; `test_socket` also tests Unix sockets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        yield near, far


class TickingClock:
    """A clock that advances by one second at each read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


class Endpoints:
    """A server socket before its handshake, and the socket of its peer."""

    def __init__(self, pair: Any, pki: Any, *, mutual: bool = False) -> None:
        self.client, far = pair
        self.client.settimeout(TIMEOUT_SECONDS)
        ca = str(pki.ca) if mutual else None
        context = TLSFiles(str(pki.server), str(pki.server_key), ca).context()
        self.server = TLSServerSocket(far, TIMEOUT_SECONDS, context)
        self._pki = pki
        self.sockets: list[ssl.SSLSocket] = []

    def handshake(self, background: Any, **options: Any) -> ssl.SSLSocket:
        """Performs the handshake, with a client's context."""
        opened = background(self.server.handshake)
        context = TLS(ca=self._pki.ca, **options).context()
        tls = self.wrap(context)
        opened.result()
        return tls

    def wrap(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        tls = context.wrap_socket(self.client, server_hostname="localhost")
        self.sockets.append(tls)
        return tls

    def end(self) -> None:
        self.server.abort()
        for each in self.sockets:
            each.close()


@pytest.fixture
def endpoints(pair: Any, pki: Any) -> Iterator[Endpoints]:
    yield (made := Endpoints(pair, pki))
    made.end()


@pytest.fixture
def mutual_endpoints(pair: Any, pki: Any) -> Iterator[Endpoints]:
    yield (made := Endpoints(pair, pki, mutual=True))
    made.end()


def read(tls: ssl.SSLSocket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        some = tls.recv(1 << 16)
        assert some, f"received {len(data)} of {count} bytes"
        data += some
    return bytes(data)


def test_data_arrives_in_both_directions(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    assert endpoints.server.encrypted
    assert tls.selected_alpn_protocol() == "h2"
    tls.sendall(b"some")
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b"some"
    endpoints.server.send([b"and", b"", memoryview(b" more"), bytearray(b"!")])
    assert read(tls, 9) == b"and more!"
    with pytest.raises(TimeoutError):
        endpoints.server.receive(0.01)
    endpoints.server.send([])
    endpoints.server.send([b""])
    tls.close()


def test_large_sends_while_receiving(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    # The peer alternates, so that the socket receives while other threads send.
    buffers = [os.urandom(size) for size in (9, 16_384, 1 << 20, 100) * 2]
    sending = [background(endpoints.server.send, [piece] * 2) for piece in buffers]
    up = os.urandom(1 << 20)

    def receive() -> bytes:
        data = bytearray()
        while len(data) < len(up):
            data += endpoints.server.receive(TIMEOUT_SECONDS)
        return bytes(data)

    receiving = background(receive)
    received = bytearray()
    total = 2 * sum(map(len, buffers))
    sent = 0
    while len(received) < total or sent < len(up):
        if sent < len(up):
            tls.sendall(up[sent : sent + 50_000])
            sent += 50_000
        if len(received) < total:
            received += tls.recv(1 << 18)
    assert receiving.result() == up
    for each in sending:
        each.result()
    # Sends are not interleaved; their order is not defined.
    left = {piece * 2 for piece in buffers}
    rest = bytes(received)
    while rest:
        (first,) = [piece for piece in left if rest.startswith(piece)]
        left.remove(first)
        rest = rest[len(first) :]
    assert not left
    tls.close()


def capture_sends(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Stores what is sent from now on, instead of sending it."""
    sent: list[bytes] = []
    monkeypatch.setattr(ServerSocket, "send", lambda self, buffers: sent.append(b"".join(buffers)))
    return sent


def test_large_send_is_encrypted_in_parts(
    endpoints: Endpoints, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints.handshake(background)
    sent = capture_sends(monkeypatch)
    endpoints.server.send([bytes(3 << 20)])
    assert sum(map(len, sent)) > 3 << 20
    assert max(map(len, sent)) < 1 << 20


def test_tls_output_is_flushed_by_a_receive(
    endpoints: Endpoints, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the reply to a key update, for which the peer may wait."""
    tls = endpoints.handshake(background)
    sent = capture_sends(monkeypatch)
    endpoints.server._engine._outgoing.write(b"answer")
    tls.sendall(b"x")
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b"x"
    assert sent == [b"answer"]


def test_tls_output_during_a_send_is_flushed_after_it(
    endpoints: Endpoints, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiving thread leaves it to the sending thread."""
    endpoints.handshake(background)
    sent: list[bytes] = []

    def send(self: ServerSocket, more: Any) -> None:
        sent.append(b"".join(more))
        if len(sent) == 1:
            endpoints.server._engine._outgoing.write(b"answer")
            endpoints.server._flush_tls_output()
            assert len(sent) == 1

    monkeypatch.setattr(ServerSocket, "send", send)
    endpoints.server.send([b"x"])
    assert sent[1:] == [b"answer"]


def test_end_of_the_connection_is_empty_bytes(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    tls.sendall(b"last")
    tls.shutdown(socket.SHUT_WR)
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b"last"
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b""
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b""
    tls.close()


def test_close_notify_ends_the_connection(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    closing = background(tls.unwrap)
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b""
    endpoints.server.abort()
    with contextlib.suppress(OSError):
        closing.result()
    tls.close()


def test_garbage_after_the_handshake_raises(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    tls.sendall(b"good")
    with socket.socket(fileno=os.dup(tls.fileno())) as raw:
        raw.sendall(b"garbage" * 10)
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b"good"
    with pytest.raises(ssl.SSLError):
        endpoints.server.receive(TIMEOUT_SECONDS)
    tls.close()


def test_send_to_a_peer_that_does_not_read_times_out(pair: Any, pki: Any, background: Any) -> None:
    endpoints = Endpoints(pair, pki)
    endpoints.server = TLSServerSocket(
        pair[1], 0.1, TLSFiles(str(pki.server), str(pki.server_key)).context()
    )
    tls = endpoints.handshake(background)
    with pytest.raises(TimeoutError, match=r"the peer accepted no data for 0\.1 s"):
        endpoints.server.send([bytes(1 << 26)])
    tls.close()


def test_abort_wakes_blocked_send_and_receive(
    endpoints: Endpoints, background: Any, eventually: Any
) -> None:
    tls = endpoints.handshake(background)
    sending = background(endpoints.server.send, [bytes(1 << 26)])
    receiving = background(endpoints.server.receive, 60)
    eventually(lambda: not endpoints.server.is_writable(), "the sockets are full")
    endpoints.server.abort()
    with pytest.raises(OSError, match=r"pipe|EOF"):  # depending on which side is first
        sending.result()
    with contextlib.suppress(BrokenPipeError):  # of TLS's own records
        assert receiving.result() == b""
    tls.close()


# Failed handshakes.


@pytest.mark.parametrize("first", [b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n", b"\0", b"\x15x"])
def test_plaintext_is_accepted_unencrypted(endpoints: Endpoints, first: bytes) -> None:
    endpoints.client.sendall(first)
    endpoints.server.handshake()
    assert not endpoints.server.encrypted
    assert endpoints.server.receive(TIMEOUT_SECONDS) == first
    endpoints.server.send([b"in ", b"the clear"])
    assert endpoints.client.recv(99) == b"in the clear"


def client_hello(pki: Any) -> bytes:
    """Returns the first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    tls = TLS(ca=pki.ca).context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_handshake_may_arrive_byte_by_byte(endpoints: Endpoints, pki: Any, background: Any) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = TLS(ca=pki.ca).context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    opened = background(endpoints.server.handshake)

    def send_byte_by_byte() -> None:
        for byte in outgoing.read():
            endpoints.client.sendall(bytes([byte]))

    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            send_byte_by_byte()
            incoming.write(endpoints.client.recv(100))
    send_byte_by_byte()
    tls.write(b"hello")
    send_byte_by_byte()
    opened.result()
    assert endpoints.server.encrypted
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b"hello"


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_stalled_handshake_times_out(
    endpoints: Endpoints, pki: Any, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(tls_socket, "_HANDSHAKE_TIMEOUT_SECONDS", 0.05)
    endpoints.client.sendall(client_hello(pki)[:count])
    with pytest.raises(TimeoutError):
        endpoints.server.handshake()


def test_slow_handshake_does_not_extend_the_timeout(
    endpoints: Endpoints, pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes of a handshake arrive, one a second."""
    data = iter(client_hello(pki))

    def receive(self: ServerSocket, timeout: float) -> bytes:
        if timeout <= 0:
            raise TimeoutError
        return bytes([next(data)])

    endpoints.client.sendall(b"\x16")  # which is peeked at
    monkeypatch.setattr(ServerSocket, "receive", receive)
    monkeypatch.setattr(tls_socket, "time", TickingClock())
    with pytest.raises(TimeoutError):
        endpoints.server.handshake()
    assert len(list(data)) > 100  # the rest would have arrived after the timeout


def test_slow_record_does_not_extend_the_timeout(
    endpoints: Endpoints, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of 16 KiB arrives, a byte a second: timers of the connection must run meanwhile."""
    tls = endpoints.handshake(background)
    record = iter(b"\x17\x03\x03\x40\x00" + bytes(16384))
    timeouts: list[float] = []

    def receive(self: ServerSocket, timeout: float) -> bytes:
        timeouts.append(timeout)
        return bytes([next(record)])

    monkeypatch.setattr(ServerSocket, "receive", receive)
    monkeypatch.setattr(tls_socket, "time", TickingClock())
    with pytest.raises(TimeoutError):
        endpoints.server.receive(20.0)
    assert timeouts == sorted(timeouts, reverse=True)
    assert len(timeouts) <= 20
    tls.close()


def test_flood_of_records_without_data_ends_the_connection(
    endpoints: Endpoints, background: Any
) -> None:
    """Records of a byte stand for key updates, which Python cannot send; both carry no frame."""
    tls = endpoints.handshake(background)
    sent = background(lambda: [tls.sendall(b"x") for _ in range(10_000)])
    with pytest.raises(FloodError, match="TLS records without data"):
        list(iter(lambda: endpoints.server.receive(TIMEOUT_SECONDS), b""))
    sent.result()


def test_key_updates_are_charged(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    read, reads = endpoints.server._engine.read, iter([None] * 10_000)

    def read_nothing(into: memoryview) -> int | None:
        read(into)
        return next(reads)

    endpoints.server._engine.read = read_nothing  # type: ignore[method-assign]
    sent = background(lambda: [tls.sendall(b"key update") for _ in range(10_000)])
    with pytest.raises(FloodError):
        endpoints.server.receive(TIMEOUT_SECONDS)
    sent.result()


def test_frames_in_records_of_their_own_are_free(endpoints: Endpoints, background: Any) -> None:
    tls = endpoints.handshake(background)
    for _ in range(2 * round(POOR_RECORD_RATE.burst)):
        tls.sendall(b"123456789")
        assert endpoints.server.receive(TIMEOUT_SECONDS) == b"123456789"


@pytest.mark.parametrize("count", [1, 5, 100])
def test_connection_closed_in_the_handshake_raises(
    endpoints: Endpoints, pki: Any, count: int
) -> None:
    endpoints.client.sendall(client_hello(pki)[:count])
    endpoints.client.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError, match="closed the connection in the TLS handshake"):
        endpoints.server.handshake()


def test_connection_closed_without_data_is_an_end(endpoints: Endpoints) -> None:
    endpoints.client.shutdown(socket.SHUT_WR)
    endpoints.server.handshake()
    assert endpoints.server.receive(TIMEOUT_SECONDS) == b""


GARBAGE = [
    b"\x16" + b"garbage" * 100,
    b"\x16\x03\x01\0\x04\xff\xff\xff\xff",
    b"\x16\x03\x01\xff\xff" + bytes(70_000),
    b"\x16\x02\x00\0\x05\x01\0\0\x01\0",
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_that_begins_like_tls_is_refused(
    endpoints: Endpoints, garbage: bytes, monkeypatch: pytest.MonkeyPatch, background: Any
) -> None:
    monkeypatch.setattr(tls_socket, "_LINGER_TIMEOUT_SECONDS", 0.2)
    opening = background(endpoints.server.handshake)
    endpoints.client.sendall(garbage)
    with pytest.raises(HandshakeError, match=r"^TLS handshake failed: "):
        opening.result()
    assert not endpoints.server.encrypted


def read_alert(tls: ssl.SSLSocket) -> str:
    """Reads to the end; returns the alert that it is."""
    try:
        while tls.recv(1 << 16):
            pass
    except ssl.SSLError as error:
        return str(error.reason)
    return "end"


@pytest.mark.parametrize(
    ("certificate", "message", "alert"),
    [
        (None, "TLS handshake failed: peer did not return a certificate", "CERTIFICATE_REQUIRED"),
        (
            "trainer_expired",
            "untrusted certificate: certificate has expired",
            "CERTIFICATE_EXPIRED",
        ),
        (
            "untrusted",
            "untrusted certificate: unable to get local issuer certificate",
            "UNKNOWN_CA",
        ),
    ],
)
def test_refused_client_receives_the_alert(
    mutual_endpoints: Endpoints,
    pki: Any,
    background: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    certificate: str | None,
    message: str,
    alert: str,
) -> None:
    """Closed with bytes unread, the connection would be reset while the peer sends."""
    monkeypatch.setattr(tls_socket, "_LINGER_TIMEOUT_SECONDS", 100.0)  # until the peer closes
    caplog.set_level(logging.INFO)
    running = background(Connection(mutual_endpoints.server, "peer", lambda stream: None).run)
    files = (getattr(pki, certificate), getattr(pki, f"{certificate}_key")) if certificate else ()
    tls = mutual_endpoints.wrap(TLS(pki.ca, *files).context())
    with socket.socket(fileno=os.dup(tls.fileno())) as raw:
        raw.settimeout(TIMEOUT_SECONDS)
        raw.sendall(bytes(32 << 20))  # more than all buffers hold
    assert alert in read_alert(tls)
    tls.close()
    running.result()
    assert f"peer was refused: {message}" in caplog.text


def test_client_with_a_trusted_certificate_is_accepted(
    mutual_endpoints: Endpoints, pki: Any, background: Any
) -> None:
    tls = mutual_endpoints.handshake(background, cert=pki.trainer, key=pki.trainer_key)
    assert mutual_endpoints.server.encrypted
    tls.close()


def test_context_options_apply_to_each_connection(endpoints: Endpoints) -> None:
    own = endpoints.server._engine._ssl.context
    assert own.options & ssl.OP_NO_RENEGOTIATION
    assert own.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_not_resumed(pki: Any, background: Any, version: ssl.TLSVersion) -> None:
    """By ticket or id: the client's certificate, which may have expired, is not sent again."""
    context = TLSFiles(str(pki.server), str(pki.server_key), str(pki.ca)).context()
    trainer = TLS(pki.ca, pki.trainer, pki.trainer_key).context()
    trainer.minimum_version = trainer.maximum_version = version
    kept: list[Any] = []  # a session of TLS 1.2 is forgotten when its connection ends
    session = None
    for _ in range(2):
        near, far = socket.socketpair()
        with near, far:
            kept.append(sock := TLSServerSocket(far, TIMEOUT_SECONDS, context))
            opened = background(sock.handshake)
            tls = trainer.wrap_socket(near, server_hostname="127.0.0.1", session=session)
            opened.result()
            sock.send([b"x"])
            assert tls.recv(1) == b"x"  # after the tickets of TLS 1.3
            assert not tls.session_reused
            session = tls.session
            tls.close()
    if version is ssl.TLSVersion.TLSv1_3:
        assert not session.has_ticket


def test_lingering_ends_at_its_timeout(
    endpoints: Endpoints, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def talk() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set():
                endpoints.client.sendall(bytes(1 << 14))

    monkeypatch.setattr(tls_socket, "time", TickingClock())
    talking = background(talk)
    endpoints.server._linger(20.0)
    over.set()
    endpoints.server.close()  # with bytes unread, so the reset wakes the peer
    talking.result()


# Connections.


def test_http2_over_tls(pair: Any, pki: Any) -> None:
    endpoints = Endpoints(pair, pki)
    streams: list[Stream] = []
    opened = threading.Event()
    connection = Connection(
        endpoints.server, "peer", lambda stream: (streams.append(stream), opened.set())
    )
    thread = threading.Thread(target=connection.run, daemon=True)
    thread.start()
    context = TLS(ca=pki.ca).context()
    with context.wrap_socket(endpoints.client, server_hostname="localhost") as tls:
        protocol = h2.connection.H2Connection()
        protocol.initiate_connection()
        headers = [(":method", "POST"), (":scheme", "https"), (":path", "/a"), (":authority", "s")]
        protocol.send_headers(1, headers)
        tls.sendall(protocol.data_to_send())
        assert opened.wait(TIMEOUT_SECONDS)
        (stream,) = streams
        assert stream.encrypted
        assert connection.encrypted
        stream.send_headers([(":status", "200")])
        stream.send([b"x" * 50_000])
        received = 0
        while received < 50_000:
            for event in protocol.receive_data(tls.recv(1 << 16)):
                if isinstance(event, h2.events.DataReceived):
                    received += len(event.data or b"")
        connection.drain()
        connection.abort()
    thread.join(TIMEOUT_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize(("data", "wait_count"), [(b"", 1), (b"\x16\x03\x01", 3)])
def test_abort_ends_a_handshake_at_once(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, data: bytes, wait_count: int
) -> None:
    waiting = threading.Semaphore(0)
    wait_readable = ServerSocket._wait_readable

    def record(self: ServerSocket, timeout: float) -> None:
        waiting.release()
        wait_readable(self, timeout)

    monkeypatch.setattr(ServerSocket, "_wait_readable", record)
    monkeypatch.setattr(tls_socket, "_HANDSHAKE_TIMEOUT_SECONDS", 1000.0)
    endpoints.client.sendall(data)
    connection = Connection(endpoints.server, "peer", lambda stream: None)
    thread = threading.Thread(target=connection.run, daemon=True)
    thread.start()
    for _ in range(wait_count):
        assert waiting.acquire(timeout=TIMEOUT_SECONDS)
    connection.drain()  # which must send nothing unencrypted
    connection.abort()
    thread.join(TIMEOUT_SECONDS)
    assert not thread.is_alive()
    assert endpoints.client.recv(99) == b""
