"""A link in TLS, against OpenSSL's own socket driven by hand: what both say arrives, every wait
ends, and what is wrong is told apart from what is away."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infeed.http2 import Exchange
from infeed.link import UntrustedError
from infeed.secure import SecureLink
from infeed.tls import TLS

SECONDS = 20.0


def context_of(pki: Any, cert: str = "server", *, alpn: str | None = "h2") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(getattr(pki, cert), getattr(pki, f"{cert}_key"))
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


@pytest.fixture
def secure_peer(pki: Any, peer: Any) -> Callable[..., str]:
    """A server whose script gets the socket of TLS once hands are shaken; where they are not, the
    error that it met is in `errors`."""

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
def new_link(pki: Any) -> Iterator[Callable[..., SecureLink]]:
    links: list[SecureLink] = []

    def new(address: str, name: str = "127.0.0.1", tls: TLS | None = None) -> SecureLink:
        links.append(SecureLink(address, (tls or TLS(ca=pki.ca)).context(), name))
        return links[-1]

    yield new
    for each in links:
        each.close()


def received(link: SecureLink, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = link.receive(view[: 1 << 18], SECONDS)
        assert got, f"{len(view)} of {count} bytes are missing"
        view = view[got:]
    return bytes(data)


@contextlib.contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Does it a moment after the block has begun."""
    timer = threading.Timer(0.1, action)
    timer.start()
    yield
    timer.join()


def take(tls: ssl.SSLSocket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        some = tls.recv(count - len(data))
        assert some
        data += some
    return bytes(data)


def until_closed(tls: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError):
        while tls.recv(1 << 16):
            pass


def echo(tls: ssl.SSLSocket) -> None:
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        while data := tls.recv(1 << 16):
            tls.sendall(data)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_ways_at_once(
    pki: Any, secure_peer: Any, new_link: Any, version: ssl.TLSVersion
) -> None:
    context = context_of(pki)
    context.minimum_version = context.maximum_version = version
    up, down = os.urandom(8 << 20), os.urandom(8 << 20)
    came: list[bytes] = []

    def script(tls: ssl.SSLSocket) -> None:
        # OpenSSL's socket must not be read and written at once, so it takes turns.
        got = bytearray()
        for begin in range(0, len(down), 1 << 16):
            tls.sendall(down[begin : begin + (1 << 16)])
            got += take(tls, 1 << 16)
        came.append(bytes(got))

    link = new_link(secure_peer(script, context))
    link.open()

    def send() -> None:
        for begin in range(0, len(up), 100_000):
            link.send(up[begin : begin + 100_000])

    sender = threading.Thread(target=send)
    sender.start()
    assert received(link, len(down)) == down
    sender.join(SECONDS)
    assert link.receive(memoryview(bytearray(9)), SECONDS) == 0
    assert came == [up]


def test_more_than_is_asked_for_is_kept(secure_peer: Any, new_link: Any) -> None:
    link = new_link(secure_peer(lambda tls: tls.sendall(b"x" * 100 + b"y" * 100)))
    link.open()
    into = memoryview(bytearray(100))
    assert received(link, 100) == b"x" * 100
    assert link.receive(into, 0) == 100  # without a byte from the socket
    assert bytes(into) == b"y" * 100


def test_silence_is_a_timeout(secure_peer: Any, new_link: Any) -> None:
    link = new_link(secure_peer(echo))
    link.open()
    for seconds in (0.01, 0, -1):
        with pytest.raises(TimeoutError):
            link.receive(memoryview(bytearray(9)), seconds)
    link.send(b"x")
    assert received(link, 1) == b"x"


def shaken_in_memory(talk: Any, pki: Any) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A server's end behind its handshake; what it says lies in memory, to be sent in parts."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context_of(pki).wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            tls.do_handshake()
            return tls, incoming, outgoing
        except ssl.SSLWantReadError:
            talk.send(outgoing.read())
            incoming.write(talk.socket.recv(1 << 16))


def test_a_record_that_comes_byte_by_byte_is_not_waited_for_longer(pki: Any, peer: Any) -> None:
    """A proxy between both ends that holds back: what comes is no data until all of it has come."""
    released = threading.Event()

    def server(talk: Any) -> None:
        tls, _, outgoing = shaken_in_memory(talk, pki)
        talk.send(outgoing.read())
        tls.write(b"x" * 16_000)
        for byte in outgoing.read():
            talk.send(bytes([byte]))
            if released.wait(0.02):
                return

    link = SecureLink(peer(server), TLS(ca=pki.ca).context(), "127.0.0.1")
    link.open()
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        link.receive(memoryview(bytearray(9)), 0.3)
    assert time.monotonic() - begin < 10
    released.set()
    link.close()


def silent(talk: Any) -> None:
    while talk.socket.recv(1 << 16):
        pass


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x03\x40\x00\x02"])
def test_a_peer_that_stops_in_the_handshake(first: bytes, peer: Any, new_link: Any) -> None:
    def script(talk: Any) -> None:
        talk.send(first)
        silent(talk)

    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        new_link(peer(script)).open(0.3)
    assert time.monotonic() - begin < 10


def test_a_peer_that_answers_the_handshake_byte_by_byte(peer: Any, new_link: Any) -> None:
    def script(talk: Any) -> None:
        for byte in b"\x16\x03\x03\x40\x00\x02\x00" + bytes(500):
            talk.send(bytes([byte]))
            time.sleep(0.02)

    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        new_link(peer(script)).open(0.3)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("abrupt", [False, True])
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x03"])
def test_a_peer_that_cuts_in_the_handshake(
    first: bytes, abrupt: bool, peer: Any, new_link: Any
) -> None:
    def script(talk: Any) -> None:
        talk.socket.recv(1 << 16 if not abrupt else 1)
        talk.send(first)
        if abrupt:  # as a reset
            talk.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with pytest.raises(ConnectionError, match=r"reset|cut in the TLS handshake") as caught:
        new_link(peer(script)).open()
    assert not isinstance(caught.value, UntrustedError)  # which would not be tried again


HTTP2 = b"\0\0\x12\x04\0\0\0\0\0" + bytes(18)


@pytest.mark.parametrize(
    "says",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", HTTP2, b"SSH-2.0-x\r\n", b"\0", b"\x17\x03\x03\0\x01x"],
)
def test_a_peer_that_does_not_speak_tls(says: bytes, peer: Any, new_link: Any) -> None:
    def script(talk: Any) -> None:
        talk.send(says)
        silent(talk)

    link = new_link(address := peer(script))
    with pytest.raises(UntrustedError) as caught:
        link.open()
    assert str(caught.value) == (
        f"{address} does not speak TLS; leave out tls=, or give the server a certificate"
    )


@pytest.mark.parametrize(
    "says",
    [
        b"\x16" + b"garbage" * 100,
        b"\x16\x03\x03\0\x04\xff\xff\xff\xff",
        b"\x15\x03\x03\0\x02\x02\x50",
    ],
)
def test_a_peer_that_speaks_broken_tls(says: bytes, peer: Any, new_link: Any) -> None:
    def script(talk: Any) -> None:
        talk.send(says)
        silent(talk)

    with pytest.raises(ConnectionAbortedError, match=r"^TLS failed: "):
        new_link(peer(script)).open(5)


@pytest.mark.parametrize("alpn", [None, "http/1.1"])
def test_a_peer_that_speaks_something_else_in_tls(
    pki: Any, secure_peer: Any, new_link: Any, alpn: str | None
) -> None:
    link = new_link(secure_peer(until_closed, context_of(pki, alpn=alpn)))
    with pytest.raises(UntrustedError, match="speaks TLS, but not HTTP/2 in it"):
        link.open()


@pytest.mark.parametrize(
    ("cert", "name", "why"),
    [
        ("server_expired", "127.0.0.1", "certificate has expired"),
        ("stranger", "127.0.0.1", r"unable to get local issuer certificate; name its authority"),
        ("elsewhere", "127.0.0.1", "IP address mismatch, .*'127.0.0.1'"),
        ("elsewhere", "localhost", "Hostname mismatch, .*'localhost'"),
        ("server", "infeed.example.org", "Hostname mismatch"),
        ("server", "localhost.", "Hostname mismatch"),
        ("server", "127.0.0.2", "IP address mismatch"),
        ("trainer", "127.0.0.1", "unsuitable|unsupported|mismatch"),
    ],
)
def test_a_server_that_is_not_to_be_trusted(
    pki: Any, secure_peer: Any, new_link: Any, cert: str, name: str, why: str
) -> None:
    errors: list[Exception] = []
    address = secure_peer(until_closed, context_of(pki, cert), errors)
    with pytest.raises(UntrustedError, match=why) as caught:
        new_link(address, name).open()
    told = f"the certificate of {address} is not to be trusted as that of {name!r}: "
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1", "LOCALHOST"])
def test_the_name_that_the_certificate_bears(secure_peer: Any, new_link: Any, name: str) -> None:
    link = new_link(secure_peer(echo), name)
    link.open()
    link.send(b"hello")
    assert received(link, 5) == b"hello"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("trainer", None),
        (None, r"asks for a trainer's certificate"),
        ("trainer_expired", "refuses this trainer's certificate: it has expired"),
        ("stranger", "refuses this trainer's certificate: it does not know its authority"),
    ],
)
def test_a_server_that_asks_for_a_certificate(
    pki: Any,
    secure_peer: Any,
    new_link: Any,
    version: ssl.TLSVersion,
    shown: str | None,
    told: str | None,
) -> None:
    context = context_of(pki)
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pki.ca)
    errors: list[Exception] = []
    files = (getattr(pki, shown), getattr(pki, f"{shown}_key")) if shown else (None, None)
    address = secure_peer(echo, context, errors)
    link = new_link(address, tls=TLS(pki.ca, *files))

    def talk() -> bytes:
        link.open()
        return received(link, 1)  # where TLS 1.3 tells

    if told is None:
        link.open()
        link.send(b"x")
        assert received(link, 1) == b"x"
    else:
        with pytest.raises(UntrustedError, match=rf"^{address} .*{told}"):
            talk()


def test_no_version_in_common(pki: Any, secure_peer: Any, new_link: Any) -> None:
    context = context_of(pki)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    tls = TLS(ca=pki.ca).context()
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    errors: list[Exception] = []
    link = SecureLink(secure_peer(echo, context, errors), tls, "127.0.0.1")
    with pytest.raises(UntrustedError, match="no version of TLS in common"):
        link.open()
    link.close()


def refuse_behind_data(pki: Any) -> Callable[[Any], None]:
    """Data, and right behind it what breaks the connection, in one piece."""

    def script(talk: Any) -> None:
        tls, incoming, outgoing = shaken_in_memory(talk, pki)
        tls.write(b"good")
        broken = b"\x17\x03\x03\0\x20" + bytes(32)
        incoming.write(broken)
        with contextlib.suppress(ssl.SSLError):
            tls.read(9)  # which makes OpenSSL write its alert, a fatal one
        talk.send(outgoing.read())
        silent(talk)

    return script


def test_what_was_sent_before_a_fatal_alert_arrives(pki: Any, peer: Any, new_link: Any) -> None:
    link = new_link(peer(refuse_behind_data(pki)))
    link.open()
    time.sleep(0.1)  # so that all has come when it is first asked for
    into = memoryview(bytearray(99))
    assert link.receive(into, SECONDS) == 4
    assert bytes(into[:4]) == b"good"
    for _ in range(2):
        with pytest.raises(ConnectionAbortedError, match=r"TLS failed: .*BAD_RECORD_MAC"):
            link.receive(into, SECONDS)


def test_bytes_that_break_it_later_are_no_reason_to_give_up_for_good(
    pki: Any, secure_peer: Any, new_link: Any
) -> None:
    """As from a proxy that answers in the clear: the server may be had again."""

    def script(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"good")
        raw = socket.socket(fileno=os.dup(tls.fileno()))
        with raw:
            raw.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        until_closed(tls)

    link = new_link(secure_peer(script))
    link.open()
    assert received(link, 4) == b"good"
    with pytest.raises(ConnectionAbortedError, match=r"^TLS failed: "):
        link.receive(memoryview(bytearray(9)), SECONDS)


@pytest.mark.parametrize("how", ["close_notify", "end"])
def test_the_end_is_zero_bytes(secure_peer: Any, new_link: Any, how: str) -> None:
    def script(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"ab")
        if how == "close_notify":
            with contextlib.suppress(OSError):
                tls.settimeout(0.1)
                tls.unwrap()

    link = new_link(secure_peer(script))
    link.open()
    assert received(link, 2) == b"ab"
    for _ in range(2):
        assert link.receive(memoryview(bytearray(9)), SECONDS) == 0


def test_an_answer_that_is_cut_off_is_no_whole_one(secure_peer: Any, new_link: Any) -> None:
    """TLS lets a cut pass for an end; HTTP/2 does not."""

    def script(tls: ssl.SSLSocket) -> None:
        take(tls, 24)
        tls.sendall(b"\0\0\0\x04\0\0\0\0\0")
        until_closed_soon = threading.Timer(0.1, tls.shutdown, [socket.SHUT_RDWR])
        until_closed_soon.start()
        until_closed_soon.join()

    link = new_link(secure_peer(script))
    link.open()
    exchange = Exchange(link)
    exchange.start([(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "s")])
    with pytest.raises(Exception, match=r"cut|reset|pipe|shutdown"):
        exchange.read(memoryview(bytearray(9)))


def test_a_cut_wakes_who_receives(secure_peer: Any, new_link: Any) -> None:
    link = new_link(secure_peer(echo))
    link.open()
    with meanwhile(link.cut), contextlib.suppress(ConnectionError):  # or the peer's reset is first
        assert link.receive(memoryview(bytearray(1)), 60) == 0


@pytest.mark.parametrize("when", ["the handshake", "the connection"])
def test_a_cut_wakes_who_opens(peer: Any, full: str, new_link: Any, when: str) -> None:
    link = new_link(full if when == "the connection" else peer(silent))
    with meanwhile(link.cut), pytest.raises(ConnectionError) as caught:
        link.open(60)
    assert not isinstance(caught.value, UntrustedError)


def test_a_cut_wakes_who_sends(secure_peer: Any, new_link: Any) -> None:
    over = threading.Event()
    link = new_link(secure_peer(lambda tls: over.wait(SECONDS)))
    link.open()

    def send() -> None:
        while True:
            link.send(bytes(1 << 20))

    with meanwhile(link.cut), pytest.raises(OSError, match="pipe"):
        send()
    over.set()


def test_what_was_cut_does_not_open(peer: Any, new_link: Any) -> None:
    link = new_link(peer(silent))
    link.cut()
    with pytest.raises(ConnectionAbortedError):
        link.open()
    link.close()
    link.close()


@pytest.fixture
def openssl(pki: Any) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`openssl s_server`, whose commands make it change keys."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-alpn", "h2", "-naccept", "1"]
    try:
        process = subprocess.Popen(
            [*words, "-cert", str(pki.server), "-key", str(pki.server_key)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError:
        pytest.skip("this machine has no openssl command")
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        while (line := process.stdout.readline()) != b"ACCEPT\n":
            assert line, "no server"
        yield f"127.0.0.1:{port}", process
        process.kill()


def expect(output: Any, *lines: bytes) -> None:
    missing = set(lines)
    while missing:
        said = output.readline()
        assert said, f"{missing} never came"
        missing.discard(said)


def test_keys_that_change_in_the_middle(openssl: Any, new_link: Any) -> None:
    address, process = openssl
    link = new_link(address)
    link.open()
    for number in range(3):
        process.stdin.write(b"K\n")  # asks for new keys of both ends
        process.stdin.flush()
        link.send(b"up %d\n" % number)
        expect(process.stdout, b"up %d\n" % number, b"SSL_do_handshake -> 1\n")  # in any order
        process.stdin.write(b"down\n")
        process.stdin.flush()
        assert received(link, 5) == b"down\n"
    link.cut()
