"""Cases that are whole connections: invalid HTTP/2, forbidden frames, incomplete requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import FEED, Catalog, headers, open_request, step_requests
from tests.stress.fuzz.calls_unary import METHODS, get
from tests.stress.fuzz.case import Kinds, mutate, random_pieces

CLIENT_PREFACE = frames.PREFACE + frames.settings(initial_window=1 << 20)


@dataclass
class RawConnection:
    """Bytes that a peer sends on one connection."""

    parts: list[bytes]
    """Data, sent part by part; each part waits until the previous one is sent."""
    abort: bool = False
    """Whether the peer closes it with a TCP reset once all is sent; else it half-closes it."""
    reads: bool = True
    """Whether the peer reads before all is sent."""


Draw: TypeAlias = "Callable[[random.Random, Catalog], RawConnection]"

RAW_CONNECTIONS: Kinds[Draw] = Kinds()

OVERLOADS: Kinds[Draw] = Kinds()
"""Cases that use all concurrent calls of the server; no feed runs at the same time."""


def request(stream: int = 1, path: str = f"{FEED}GetPipeline", flags: int = 4) -> bytes:
    return frames.headers(stream, headers(path), flags)


def session(rng: random.Random, catalog: Catalog) -> list[bytes]:
    """Returns the frames of a valid connection with a few interleaved calls."""
    calls = []
    for number in range(rng.randint(1, 4)):
        stream = 2 * number + 1
        if rng.random() < 0.5:
            body = get("numbers")
            call = [request(stream), frames.frame(frames.DATA, 1, stream, body)]
        else:
            spec = catalog.pipeline(rng)
            call = [request(stream, f"{FEED}StreamBatches")]
            messages = [open_request(spec), *step_requests(spec, range(rng.randint(0, 4)))]
            call += [frames.frame(frames.DATA, 0, stream, message) for message in messages]
            call += [frames.frame(frames.DATA, 1, stream)]
        call += [frames.window(stream, 1 << 20)] if rng.random() < 0.3 else []
        calls.append(call)
    out = []
    for call in calls:  # streams must be opened in order
        index = 0
        for frame in call:
            index = rng.randint(index, len(out)) if rng.random() < 0.5 and index else len(out)
            out.insert(index, frame)
            index += 1
    return [CLIENT_PREFACE, *out, frames.frame(frames.SETTINGS, frames.ACK, 0)]


def frame_of_any_kind(rng: random.Random) -> bytes:
    kind = rng.choice((rng.randrange(10), rng.randrange(16), rng.randrange(256)))
    stream = rng.choice((0, 0, 1, 1, 2, 3, 5, rng.randrange(1 << 32)))
    body = rng.randbytes(rng.choice((0, 1, 4, 5, 6, 8, 12, rng.randrange(60))))
    length = rng.choice((None, None, None, None, rng.randrange(20), rng.randrange(1 << 24)))
    return frames.frame(kind, rng.randrange(256), stream, body, length)


@RAW_CONNECTIONS.add(6)
def no_http2(rng: random.Random, catalog: Catalog) -> RawConnection:
    beginnings = [
        rng.randbytes(rng.choice((1, 10, 24, 100, 5000))),
        b"GET / HTTP/1.1\r\nHost: fuzz\r\n\r\n",
        b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + rng.randbytes(500),
        b"CONNECT fuzz:80 HTTP/1.1\r\n\r\n" + CLIENT_PREFACE,
        b"\0" * rng.choice((9, 1000)),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ]
    data = rng.choice([*beginnings, mutate(rng, CLIENT_PREFACE) + request()])
    return RawConnection(random_pieces(rng, data, 3), abort=rng.random() < 0.2)


@RAW_CONNECTIONS.add(8)
def random_frames(rng: random.Random, catalog: Catalog) -> RawConnection:
    out = [frame_of_any_kind(rng) for _ in range(rng.randint(1, 20))]
    return RawConnection(
        [CLIENT_PREFACE, *random_pieces(rng, b"".join(out), 3)], abort=rng.random() < 0.1
    )


@RAW_CONNECTIONS.add(12)
def mutated_session(rng: random.Random, catalog: Catalog) -> RawConnection:
    data = b"".join(session(rng, catalog))
    start = rng.choice((0, len(CLIENT_PREFACE)))
    return RawConnection(
        random_pieces(rng, data[:start] + mutate(rng, data[start:]), 3), abort=rng.random() < 0.1
    )


@RAW_CONNECTIONS.add(8)
def shuffled_session(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws valid frames that are removed, repeated, reordered, or mixed with random ones."""
    first, *rest = session(rng, catalog)
    for _ in range(rng.randint(1, 5)):
        index = rng.randrange(len(rest) + 1)
        variant = rng.randrange(4)
        if variant == 0 and rest:
            del rest[index - 1]
        elif variant == 1 and rest:
            rest.insert(index, rng.choice(rest))
        elif variant == 2:
            rng.shuffle(rest)
        else:
            rest.insert(index, frame_of_any_kind(rng))
    return RawConnection([first, b"".join(rest)])


@RAW_CONNECTIONS.add(6)
def half_session(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws a session that is truncated anywhere, and half-closed or reset."""
    data = b"".join(session(rng, catalog))
    return RawConnection([data[: rng.randrange(len(data))]], abort=rng.random() < 0.5)


@RAW_CONNECTIONS.add(10)
def forbidden(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws a connection error of RFC 9113."""
    huge = 1 << 31
    body = b"\0\0\0\0\0"
    good = request(flags=5)
    bad = rng.choice(
        [
            frames.frame(frames.DATA, 0, 1, body),
            frames.frame(frames.DATA, 0, 0, body),
            request() + frames.frame(frames.DATA, frames.PADDED, 1, b"\xff" + body),
            frames.frame(frames.HEADERS, 4, 0, b""),
            frames.headers(2, headers("/")),
            frames.frame(frames.HEADERS, 4, 1, rng.choice((b"\xff" * 9, b"\x80", b"\xc5"))),
            frames.frame(frames.HEADERS, 0xC, 1, b"\xff\0"),
            request(flags=0) + frames.frame(frames.PING, 0, 0, bytes(8)),
            request(flags=0) + frames.frame(frames.CONTINUATION, 4, 3, b""),
            frames.frame(frames.CONTINUATION, 4, 1, b""),
            frames.frame(frames.RST, 0, 1, bytes(4)),
            frames.frame(frames.RST, 0, 0, bytes(4)),
            good + frames.frame(frames.RST, 0, 1, bytes(3)),
            frames.frame(frames.SETTINGS, 0, 1, b""),
            frames.frame(frames.SETTINGS, 0, 0, bytes(5)),
            frames.frame(frames.SETTINGS, 1, 0, bytes(6)),
            frames.setting_pairs([(frames.INITIAL_WINDOW, huge)]),
            frames.setting_pairs([(frames.MAX_FRAME, rng.choice((0, 16383, 1 << 24)))]),
            frames.setting_pairs([(frames.ENABLE_PUSH, 2)]),
            frames.frame(frames.PUSH, 4, 1, (2).to_bytes(4, "big")),
            frames.frame(frames.PING, 0, 1, bytes(8)),
            frames.frame(frames.PING, 0, 0, bytes(rng.choice((0, 7, 9)))),
            frames.window(0, 0),
            frames.window(0, frames.MAX_WINDOW) * 2,
            frames.frame(frames.WINDOW, 0, 0, bytes(3)),
            frames.frame(frames.GOAWAY, 0, 1, bytes(8)),
            frames.frame(rng.randrange(256), 0, 1, bytes(10), length=rng.randint(20000, 1 << 24)),
        ]
    )
    more = frame_of_any_kind(rng) * rng.randint(0, 3)
    return RawConnection([CLIENT_PREFACE, bad + more])


@RAW_CONNECTIONS.add(2)
def refused_streams(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws invalid streams on a connection that may stay open."""
    spec = catalog.specs["numbers"]
    feed = request(1, f"{FEED}StreamBatches") + frames.frame(frames.DATA, 0, 1, open_request(spec))
    bad = rng.choice(
        [
            request(5) + request(3),
            request(1) + frames.frame(frames.DATA, 0, 1, bytes(16384)) * 9,
            request(1) + frames.window(1, frames.MAX_WINDOW) * 2,
            request(1) + frames.window(1, 0),
            request(1, flags=5) + frames.frame(frames.DATA, 0, 1, b"late"),
            request(1, flags=5) + frames.headers(1, [("x", "late")], 5),
            request(1, flags=0x24),
            frames.frame(frames.HEADERS, 0x24, 1, (1).to_bytes(4, "big") + b"\1" + request(1)[9:]),
            feed + frames.frame(frames.DATA, 0, 1, bytes(16384)) * 9,
            feed + frames.headers(1, [("x", "a trailer")], 5),
            feed + frames.headers(1, [("x", "no end")], 4),
            frames.window(7, 1) + frames.reset(9),
        ]
    )
    return RawConnection([CLIENT_PREFACE, bad + request(11, flags=5)])


@RAW_CONNECTIONS.add(6)
def bad_request(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws invalid request headers, for which the stream or the connection is refused."""
    good = headers(rng.choice(METHODS))
    variant = rng.randrange(8)
    if variant == 0:
        fields = [
            field for field in good if field[0] != rng.choice((":path", ":method", ":scheme"))
        ]
    elif variant == 1:
        fields = [*good, rng.choice(good)]
    elif variant == 2:
        fields = [*good, (rng.choice(("UPPER", "a b", "", ":unknown", "x\0", "\xff")), "x")]
    elif variant == 3:
        fields = [*good, ("x", rng.choice(("a\r\nb: c", "\0", " x ", "\x7f", "\xff\xfe")))]
    elif variant == 4:
        hops = ("connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection")
        fields = [*good, (rng.choice(hops), "x"), ("te", "gzip")]
    elif variant == 5:
        fields = rng.sample(good, len(good))
    elif variant == 6:
        fields = [*good, ("content-length", rng.choice(("0", "-1", "x", "99", "9" * 40)))]
    else:
        fields = [*good, ("host", "other"), (":protocol", "websocket")]
    data = frames.frame(frames.DATA, 1, 1, get("numbers"))
    return RawConnection([CLIENT_PREFACE, frames.headers(1, fields) + data])
