"""A wire in TLS, against OpenSSL's own socket: data arrives both ways, every wait ends, and a
refused peer can read why."""

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

from infeed.tls import TLS
from infeed_server.http2 import secure
from infeed_server.http2 import wire as wires
from infeed_server.http2.connection import Connection
from infeed_server.http2.secure import SecureWire
from infeed_server.http2.stream import Stream
from infeed_server.http2.wire import RefusedError, Wire
from infeed_server.runtime.certificate import TLSFiles

SECONDS = 60.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection; `test_wire` has those of Unix sockets too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        yield near, far


class Ticking:
    """A clock that moves one second whenever it is read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


class Ends:
    """A wire, not opened yet, and the socket of its peer."""

    def __init__(self, pair: Any, pki: Any, *, mutual: bool = False) -> None:
        self.near, far = pair
        self.near.settimeout(SECONDS)
        ca = str(pki.ca) if mutual else None
        context = TLSFiles(str(pki.server), str(pki.server_key), ca).context()
        self.wire = SecureWire(far, SECONDS, context)
        self._pki = pki
        self.sockets: list[ssl.SSLSocket] = []

    def shake(self, background: Any, **options: Any) -> ssl.SSLSocket:
        """Shakes hands, as a trainer's end does."""
        opened = background(self.wire.open)
        context = TLS(ca=self._pki.ca, **options).context()
        tls = self.wrap(context)
        opened.result()
        return tls

    def wrap(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        tls = context.wrap_socket(self.near, server_hostname="localhost")
        self.sockets.append(tls)
        return tls

    def end(self) -> None:
        self.wire.cut()
        for each in self.sockets:
            each.close()


@pytest.fixture
def ends(pair: Any, pki: Any) -> Iterator[Ends]:
    yield (made := Ends(pair, pki))
    made.end()


@pytest.fixture
def mutual(pair: Any, pki: Any) -> Iterator[Ends]:
    yield (made := Ends(pair, pki, mutual=True))
    made.end()


def read(tls: ssl.SSLSocket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        some = tls.recv(1 << 16)
        assert some, f"{len(data)} of {count} bytes came"
        data += some
    return bytes(data)


def test_there_and_back(ends: Ends, background: Any) -> None:
    tls = ends.shake(background)
    assert ends.wire.secure
    assert tls.selected_alpn_protocol() == "h2"
    tls.sendall(b"some")
    assert ends.wire.receive(SECONDS) == b"some"
    ends.wire.send([b"and", b"", memoryview(b" more"), bytearray(b"!")])
    assert read(tls, 9) == b"and more!"
    with pytest.raises(TimeoutError):
        ends.wire.receive(0.01)
    ends.wire.send([])
    ends.wire.send([b""])
    tls.close()


def test_large_sends_while_it_receives(ends: Ends, background: Any) -> None:
    tls = ends.shake(background)
    # The peer reads all before it writes, so what the wire receives comes while others send.
    pieces = [os.urandom(size) for size in (9, 16_384, 1 << 20, 100) * 2]
    sending = [background(ends.wire.send, [piece] * 2) for piece in pieces]
    up = os.urandom(1 << 20)

    def receive() -> bytes:
        data = bytearray()
        while len(data) < len(up):
            data += ends.wire.receive(SECONDS)
        return bytes(data)

    receiving = background(receive)
    got = bytearray()
    total = 2 * sum(map(len, pieces))
    sent = 0
    while len(got) < total or sent < len(up):
        if sent < len(up):
            tls.sendall(up[sent : sent + 50_000])
            sent += 50_000
        if len(got) < total:
            got += tls.recv(1 << 18)
    assert receiving.result() == up
    for each in sending:
        each.result()
    # Each send is whole, in any order.
    left = {piece * 2 for piece in pieces}
    rest = bytes(got)
    while rest:
        (first,) = [piece for piece in left if rest.startswith(piece)]
        left.remove(first)
        rest = rest[len(first) :]
    assert not left
    tls.close()


def note_sends(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keeps what goes out from now on, instead of sending it."""
    sent: list[bytes] = []
    monkeypatch.setattr(Wire, "send", lambda self, pieces: sent.append(b"".join(pieces)))
    return sent


def test_no_more_than_a_part_of_a_large_send_is_in_memory(
    ends: Ends, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.shake(background)
    sent = note_sends(monkeypatch)
    ends.wire.send([bytes(3 << 20)])
    assert sum(map(len, sent)) > 3 << 20
    assert max(map(len, sent)) < 1 << 20


def test_what_tls_itself_sends_goes_out_with_a_read(
    ends: Ends, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the answer to a peer that renews its keys, and then waits."""
    tls = ends.shake(background)
    sent = note_sends(monkeypatch)
    ends.wire._cipher._outgoing.write(b"answer")
    tls.sendall(b"x")
    assert ends.wire.receive(SECONDS) == b"x"
    assert sent == [b"answer"]


def test_what_tls_itself_sends_goes_out_behind_a_send(
    ends: Ends, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads leaves it to the one that sends."""
    ends.shake(background)
    sent: list[bytes] = []

    def send(self: Wire, more: Any) -> None:
        sent.append(b"".join(more))
        if len(sent) == 1:
            ends.wire._cipher._outgoing.write(b"answer")
            ends.wire._relieve()
            assert len(sent) == 1

    monkeypatch.setattr(Wire, "send", send)
    ends.wire.send([b"x"])
    assert sent[1:] == [b"answer"]


def test_the_end_is_no_bytes(ends: Ends, background: Any) -> None:
    tls = ends.shake(background)
    tls.sendall(b"last")
    tls.shutdown(socket.SHUT_WR)
    assert ends.wire.receive(SECONDS) == b"last"
    assert ends.wire.receive(SECONDS) == b""
    assert ends.wire.receive(SECONDS) == b""
    tls.close()


def test_a_close_notify_is_an_end_too(ends: Ends, background: Any) -> None:
    tls = ends.shake(background)
    closing = background(tls.unwrap)
    assert ends.wire.receive(SECONDS) == b""
    ends.wire.cut()
    with contextlib.suppress(OSError):
        closing.result()
    tls.close()


def test_garbage_behind_the_handshake(ends: Ends, background: Any) -> None:
    tls = ends.shake(background)
    tls.sendall(b"good")
    with socket.socket(fileno=os.dup(tls.fileno())) as raw:
        raw.sendall(b"garbage" * 10)
    assert ends.wire.receive(SECONDS) == b"good"
    with pytest.raises(ssl.SSLError):
        ends.wire.receive(SECONDS)
    tls.close()


def test_a_peer_that_takes_nothing_is_given_up(pair: Any, pki: Any, background: Any) -> None:
    ends = Ends(pair, pki)
    ends.wire = SecureWire(pair[1], 0.1, TLSFiles(str(pki.server), str(pki.server_key)).context())
    tls = ends.shake(background)
    with pytest.raises(TimeoutError, match=r"the peer took nothing for 0\.1 s"):
        ends.wire.send([bytes(1 << 26)])
    tls.close()


def test_a_cut_wakes_who_sends_and_who_receives(
    ends: Ends, background: Any, eventually: Any
) -> None:
    tls = ends.shake(background)
    sending = background(ends.wire.send, [bytes(1 << 26)])
    receiving = background(ends.wire.receive, 60)
    eventually(lambda: not ends.wire.is_writable(), "the sockets are full")
    ends.wire.cut()
    with pytest.raises(OSError, match=r"pipe|EOF"):  # whichever of both is first
        sending.result()
    with contextlib.suppress(BrokenPipeError):  # of what TLS had to say itself
        assert receiving.result() == b""
    tls.close()


# Handshakes that are none.


@pytest.mark.parametrize("first", [b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n", b"\0", b"\x15x"])
def test_plaintext_is_let_through_for_others_to_answer(ends: Ends, first: bytes) -> None:
    ends.near.sendall(first)
    ends.wire.open()
    assert not ends.wire.secure
    assert ends.wire.receive(SECONDS) == first
    ends.wire.send([b"in ", b"the clear"])
    assert ends.near.recv(99) == b"in the clear"


def hello(pki: Any) -> bytes:
    """What a trainer says first."""
    outgoing = ssl.MemoryBIO()
    tls = TLS(ca=pki.ca).context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_a_handshake_byte_by_byte(ends: Ends, pki: Any, background: Any) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = TLS(ca=pki.ca).context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    opened = background(ends.wire.open)

    def drip() -> None:
        for byte in outgoing.read():
            ends.near.sendall(bytes([byte]))

    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            drip()
            incoming.write(ends.near.recv(100))
    drip()
    tls.write(b"hello")
    drip()
    opened.result()
    assert ends.wire.secure
    assert ends.wire.receive(SECONDS) == b"hello"


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_a_peer_that_stops_in_the_handshake(
    ends: Ends, pki: Any, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(secure, "_HANDSHAKE_SECONDS", 0.05)
    ends.near.sendall(hello(pki)[:count])
    with pytest.raises(TimeoutError):
        ends.wire.open()


def test_a_peer_that_drips_does_not_win_time(
    ends: Ends, pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes of a handshake, one a second."""
    data = iter(hello(pki))

    def receive(self: Wire, timeout: float) -> bytes:
        if timeout <= 0:
            raise TimeoutError
        return bytes([next(data)])

    ends.near.sendall(b"\x16")  # which is looked at only
    monkeypatch.setattr(Wire, "receive", receive)
    monkeypatch.setattr(secure, "time", Ticking())
    with pytest.raises(TimeoutError):
        ends.wire.open()
    assert len(list(data)) > 100  # the rest would have come later


@pytest.mark.parametrize("count", [1, 5, 100])
def test_a_peer_that_leaves_in_the_handshake(ends: Ends, pki: Any, count: int) -> None:
    ends.near.sendall(hello(pki)[:count])
    ends.near.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError, match="left in the TLS handshake"):
        ends.wire.open()


def test_a_peer_that_says_nothing_and_leaves(ends: Ends) -> None:
    ends.near.shutdown(socket.SHUT_WR)
    ends.wire.open()
    assert ends.wire.receive(SECONDS) == b""


GARBAGE = [
    b"\x16" + b"garbage" * 100,
    b"\x16\x03\x01\0\x04\xff\xff\xff\xff",
    b"\x16\x03\x01\xff\xff" + bytes(70_000),
    b"\x16\x02\x00\0\x05\x01\0\0\x01\0",
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_that_begins_as_tls_does(
    ends: Ends, garbage: bytes, monkeypatch: pytest.MonkeyPatch, background: Any
) -> None:
    monkeypatch.setattr(secure, "_LINGER_SECONDS", 0.2)
    opening = background(ends.wire.open)
    ends.near.sendall(garbage)
    with pytest.raises(RefusedError, match=r"^no TLS with it: "):
        opening.result()
    assert not ends.wire.secure


def told(tls: ssl.SSLSocket) -> str:
    """What the peer reads in the end."""
    try:
        while tls.recv(1 << 16):
            pass
    except ssl.SSLError as error:
        return str(error.reason)
    return "the end"


@pytest.mark.parametrize(
    ("shown", "why", "alert"),
    [
        (None, "no TLS with it: peer did not return a certificate", "CERTIFICATE_REQUIRED"),
        (
            "trainer_expired",
            "its certificate is not to be trusted: certificate has expired",
            "CERTIFICATE_EXPIRED",
        ),
        (
            "stranger",
            "its certificate is not to be trusted: unable to get local issuer certificate",
            "UNKNOWN_CA",
        ),
    ],
)
def test_a_trainer_that_is_refused_can_read_why(
    mutual: Ends,
    pki: Any,
    background: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    shown: str | None,
    why: str,
    alert: str,
) -> None:
    """Closed with bytes unread, the connection would be reset, and a peer that sends see that."""
    monkeypatch.setattr(secure, "_LINGER_SECONDS", 100.0)  # until the peer closes
    caplog.set_level(logging.INFO)
    running = background(Connection(mutual.wire, "peer", lambda stream: None).run)
    files = (getattr(pki, shown), getattr(pki, f"{shown}_key")) if shown else (None, None)
    tls = mutual.wrap(TLS(pki.ca, *files).context())
    with socket.socket(fileno=os.dup(tls.fileno())) as raw:
        raw.settimeout(SECONDS)
        raw.sendall(bytes(32 << 20))  # more than all buffers on the way take
    assert alert in told(tls)
    tls.close()
    running.result()
    assert f"peer was refused: {why}" in caplog.text


def test_a_trainer_of_the_right_authority(mutual: Ends, pki: Any, background: Any) -> None:
    tls = mutual.shake(background, cert=pki.trainer, key=pki.trainer_key)
    assert mutual.wire.secure
    tls.close()


def test_the_options_of_the_context_hold_for_every_connection(ends: Ends) -> None:
    own = ends.wire._cipher._ssl.context
    assert own.options & ssl.OP_NO_RENEGOTIATION
    assert own.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed(pki: Any, background: Any, version: ssl.TLSVersion) -> None:
    """By ticket or id: a peer would not show its certificate, which may have expired since."""
    context = TLSFiles(str(pki.server), str(pki.server_key), str(pki.ca)).context()
    trainer = TLS(pki.ca, pki.trainer, pki.trainer_key).context()
    trainer.minimum_version = trainer.maximum_version = version
    kept: list[Any] = []  # a session of TLS 1.2 is forgotten with its connection's end
    session = None
    for _ in range(2):
        near, far = socket.socketpair()
        with near, far:
            kept.append(wire := SecureWire(far, SECONDS, context))
            opened = background(wire.open)
            tls = trainer.wrap_socket(near, server_hostname="127.0.0.1", session=session)
            opened.result()
            wire.send([b"x"])
            assert tls.recv(1) == b"x"  # behind the tickets of TLS 1.3
            assert not tls.session_reused
            session = tls.session
            tls.close()
    if version is ssl.TLSVersion.TLSv1_3:
        assert not session.has_ticket


def test_a_peer_that_never_stops_is_lingered_for_a_while_only(
    ends: Ends, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def talk() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set():
                ends.near.sendall(bytes(1 << 14))

    monkeypatch.setattr(wires, "time", Ticking())
    talking = background(talk)
    ends.wire.linger(20.0)
    over.set()
    ends.wire.close()  # with bytes unread: a reset, which wakes the peer
    talking.result()


# Under a connection.


def test_connections_over_it(pair: Any, pki: Any) -> None:
    ends = Ends(pair, pki)
    streams: list[Stream] = []
    came = threading.Event()
    connection = Connection(ends.wire, "peer", lambda stream: (streams.append(stream), came.set()))
    thread = threading.Thread(target=connection.run, daemon=True)
    thread.start()
    context = TLS(ca=pki.ca).context()
    with context.wrap_socket(ends.near, server_hostname="localhost") as tls:
        machine = h2.connection.H2Connection()
        machine.initiate_connection()
        headers = [(":method", "POST"), (":scheme", "https"), (":path", "/a"), (":authority", "s")]
        machine.send_headers(1, headers)
        tls.sendall(machine.data_to_send())
        assert came.wait(SECONDS)
        (stream,) = streams
        assert stream.secure
        assert connection.secure
        stream.send_headers([(":status", "200")])
        stream.send([b"x" * 50_000])
        got = 0
        while got < 50_000:
            for event in machine.receive_data(tls.recv(1 << 16)):
                if isinstance(event, h2.events.DataReceived):
                    got += len(event.data or b"")
        connection.drain()
        connection.cut()
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize(("what", "waits"), [(b"", 1), (b"\x16\x03\x01", 3)])
def test_a_cut_ends_a_handshake_at_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, what: bytes, waits: int
) -> None:
    waiting = threading.Semaphore(0)
    wait = Wire._await

    def noting(self: Wire, timeout: float) -> None:
        waiting.release()
        wait(self, timeout)

    monkeypatch.setattr(Wire, "_await", noting)
    monkeypatch.setattr(secure, "_HANDSHAKE_SECONDS", 1000.0)
    ends.near.sendall(what)
    connection = Connection(ends.wire, "peer", lambda stream: None)
    thread = threading.Thread(target=connection.run, daemon=True)
    thread.start()
    for _ in range(waits):
        assert waiting.acquire(timeout=SECONDS)
    connection.drain()  # which must not say a word in the clear
    connection.cut()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert ends.near.recv(99) == b""
