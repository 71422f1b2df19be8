"""A link in TLS, against OpenSSL's own socket driven by hand: data arrives both ways, every wait
ends, and a peer that must not be trusted is told from one that is lost."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infeed import link as links
from infeed import secure
from infeed.http2 import Exchange, LostError
from infeed.link import Link, UntrustedError
from infeed.secure import SecureLink
from infeed.tls import TLS

SECONDS = 60.0


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


@pytest.fixture
def once_it_waits(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Any]:
    """Does something as soon as a link in the block waits for its peer."""

    @contextlib.contextmanager
    def meanwhile(action: Callable[[], object]) -> Iterator[None]:
        waiting = threading.Event()
        wait = links._wait

        def noting(*values: Any) -> bool:
            waiting.set()
            return wait(*values)

        monkeypatch.setattr(links, "_wait", noting)
        thread = threading.Thread(target=lambda: waiting.wait(SECONDS) and action())
        thread.start()
        yield
        thread.join()

    return meanwhile


class Ticking:
    """A clock that moves one second whenever it is read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.fixture
def drip(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Has links receive these bytes, one a second; gives those that have not come. With `ready`
    the next one is there already when the time is over."""

    def start(data: bytes, *, ready: bool = False) -> list[int]:
        left = list(reversed(data))

        def receive(self: Link, into: memoryview, timeout: float) -> int:
            if timeout <= 0 and not ready:
                raise TimeoutError
            into[0] = left.pop()
            return 1

        monkeypatch.setattr(Link, "receive", receive)
        monkeypatch.setattr(secure, "time", Ticking())
        return left

    return start


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
    up, down = os.urandom(4 << 20), os.urandom(4 << 20)
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


def test_a_record_that_comes_byte_by_byte_is_not_waited_for_longer(
    pki: Any, peer: Any, new_link: Any, drip: Any
) -> None:
    """A proxy between both ends that holds back: what comes is no data until all of it has come."""
    record: list[bytes] = []
    released = threading.Event()

    def server(talk: Any) -> None:
        tls, _, outgoing = shaken_in_memory(talk, pki)
        tls.write(b"x" * 16_000)
        record.append(outgoing.read())
        released.set()
        silent(talk)

    link = new_link(peer(server))
    link.open()
    assert released.wait(SECONDS)
    left = drip(record[0], ready=True)
    with pytest.raises(TimeoutError):
        link.receive(memoryview(bytearray(9)), 5.0)
    assert len(left) > 10_000


def silent(talk: Any) -> None:
    while talk.socket.recv(1 << 16):
        pass


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x03\x40\x00\x02"])
def test_a_peer_that_stops_in_the_handshake(first: bytes, peer: Any, new_link: Any) -> None:
    def script(talk: Any) -> None:
        talk.send(first)
        silent(talk)

    with pytest.raises(TimeoutError):
        new_link(peer(script)).open(0.1)


def test_a_peer_that_answers_the_handshake_byte_by_byte(
    peer: Any, new_link: Any, drip: Any
) -> None:
    link = new_link(peer(silent))
    left = drip(b"\x16\x03\x03\x40\x00\x02\x00" + bytes(500))
    with pytest.raises(TimeoutError):
        link.open(5.0)
    assert len(left) > 400


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
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", HTTP2, b"\x17\x03\x03\0\x01x"],
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


@pytest.mark.parametrize("name", ["localhost", "::1"])
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


@pytest.mark.parametrize(
    ("alert", "told"),
    [
        (40, "asks for a trainer's certificate, TLS(cert=..., key=...), or has no cipher of TLS"),
        (42, "refuses this trainer's certificate"),
        (43, "refuses this trainer's certificate: it is not one for clients"),
        (44, "refuses this trainer's certificate: it was revoked"),
        (45, "refuses this trainer's certificate: it has expired"),
        (46, "refuses this trainer's certificate"),
        (48, "refuses this trainer's certificate: it does not know its authority"),
        (49, "refuses this trainer's certificate: it has no access"),
        (70, "and this trainer have no version of TLS in common"),
        (116, "asks for a trainer's certificate; give TLS(cert=..., key=...)"),
    ],
)
def test_each_alert_that_refuses_a_trainer_has_its_own_words(
    peer: Any, new_link: Any, alert: int, told: str
) -> None:
    def script(talk: Any) -> None:
        talk.send(b"\x15\x03\x03\0\x02\x02" + bytes([alert]))
        silent(talk)

    link = new_link(address := peer(script))
    with pytest.raises(UntrustedError) as caught:
        link.open()
    assert str(caught.value).startswith(f"{address} {told}")
    assert (":" in told) == (":" in str(caught.value).removeprefix(address))


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
                tls.setblocking(False)  # it does not wait for the link's answer
                tls.unwrap()

    link = new_link(secure_peer(script))
    link.open()
    assert received(link, 2) == b"ab"
    for _ in range(2):
        assert link.receive(memoryview(bytearray(9)), SECONDS) == 0


def test_an_answer_that_is_cut_off_is_no_whole_one(pki: Any, peer: Any, new_link: Any) -> None:
    """TLS lets a cut pass for an end; HTTP/2 does not."""

    def script(talk: Any) -> None:
        with context_of(pki).wrap_socket(talk.socket, server_side=True) as talk.socket:
            talk.greet()
            talk.answer()
            talk.socket.shutdown(socket.SHUT_RDWR)

    link = new_link(peer(script))
    link.open()
    exchange = Exchange(link)
    exchange.start([(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "s")])
    with pytest.raises((LostError, BrokenPipeError, ConnectionResetError)):
        exchange.read(memoryview(bytearray(9)))


def test_sends_of_several_threads_are_each_whole(secure_peer: Any, new_link: Any) -> None:
    """As a trainer's requests and its acknowledgements are: records must be sent in their order."""
    came: list[bytes] = []
    link = new_link(secure_peer(lambda tls: came.append(take(tls, 4 * 50 * 20_000))))
    link.open()

    def send(letter: bytes) -> None:
        for _ in range(50):
            link.send(letter * 20_000)

    threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.receive(memoryview(bytearray(9)), SECONDS) == 0  # the peer has all
    (data,) = came
    pieces = [data[begin : begin + 20_000] for begin in range(0, len(data), 20_000)]
    assert all(piece == piece[:1] * 20_000 for piece in pieces)
    assert all(data.count(letter) == 50 * 20_000 for letter in (b"a", b"b", b"c", b"d"))


def note_sends(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keeps what goes out from now on, instead of sending it."""
    sent: list[bytes] = []
    monkeypatch.setattr(Link, "send", lambda self, data: sent.append(data))
    return sent


def test_no_more_than_a_part_of_a_large_send_is_in_memory(
    secure_peer: Any, new_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = new_link(secure_peer(until_closed))
    link.open()
    sent = note_sends(monkeypatch)
    link.send(bytes(3 << 20))
    assert sum(map(len, sent)) > 3 << 20
    assert max(map(len, sent)) < 1 << 20


def test_what_tls_itself_sends_goes_out_behind_a_send(
    secure_peer: Any, new_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads leaves it to the one that sends."""
    link = new_link(secure_peer(until_closed))
    link.open()
    sent: list[bytes] = []

    def send(self: Link, data: bytes) -> None:
        sent.append(data)
        if len(sent) == 1:
            link._cipher._outgoing.write(b"answer")
            link._relieve()
            assert len(sent) == 1

    monkeypatch.setattr(Link, "send", send)
    link.send(b"x")
    assert sent[1:] == [b"answer"]


def test_what_tls_itself_sends_goes_out_with_a_read(
    secure_peer: Any, new_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the answer to a peer that renews its keys, and then waits."""
    link = new_link(secure_peer(echo))
    link.open()
    link.send(b"x")
    sent = note_sends(monkeypatch)
    link._cipher._outgoing.write(b"answer")
    assert link.receive(memoryview(bytearray(9)), SECONDS) == 1
    assert sent == [b"answer"]


def test_a_cut_wakes_who_receives(secure_peer: Any, new_link: Any, once_it_waits: Any) -> None:
    link = new_link(secure_peer(echo))
    link.open()
    with once_it_waits(link.cut), contextlib.suppress(ConnectionError):  # or the peer's reset first
        assert link.receive(memoryview(bytearray(1)), 1000) == 0


@pytest.mark.parametrize("when", ["the handshake", "the connection"])
def test_a_cut_wakes_who_opens(
    peer: Any, full: str, new_link: Any, once_it_waits: Any, when: str
) -> None:
    link = new_link(full if when == "the connection" else peer(silent))
    with once_it_waits(link.cut), pytest.raises(ConnectionError) as caught:
        link.open(1000)
    assert not isinstance(caught.value, UntrustedError)


def test_a_cut_wakes_who_sends(secure_peer: Any, new_link: Any, once_it_waits: Any) -> None:
    over = threading.Event()
    link = new_link(secure_peer(lambda tls: over.wait(SECONDS)))
    link.open()

    def send() -> None:
        while True:
            link.send(bytes(1 << 20))

    with once_it_waits(link.cut), pytest.raises(OSError, match="pipe"):
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
