"""Connections with excessive headers, frames or streams, or with tiny windows."""

from __future__ import annotations

import random

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import FEED, Catalog, headers, open_request, step_requests
from tests.stress.fuzz.calls_unary import METHODS
from tests.stress.fuzz.raw_connections import (
    CLIENT_PREFACE,
    OVERLOADS,
    RAW_CONNECTIONS,
    RawConnection,
    request,
)


@RAW_CONNECTIONS.add(2)
def too_many_headers(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws headers that are too large, too many, or expanded by the HPACK table."""
    good = frames.block(headers(f"{FEED}GetPipeline"))
    variant = rng.randrange(4)
    if variant == 0:
        block = good + frames.block((f"x-{number}", "y" * 900) for number in range(20))
    elif variant == 1:
        count = rng.choice((600, 4000))
        block = good + frames.block([("a", "")]) * count
    elif variant == 2:
        # One large field in the table, then referenced by one byte each.
        indexed = b"\x40" + frames.integer(1, 7) + b"a" + frames.integer(3900, 7) + b"x" * 3900
        count = rng.choice((10, 1000, 16000))
        block = good + indexed + b"\xbe" * count
    else:
        block = good + b"\x3f\xe1\x1f\x20" * rng.choice((1, 100, 3000))  # table size updates
    parts = [block[start : start + 16000] for start in range(0, len(block), 16000)]
    out = frames.frame(frames.HEADERS, 0, 1, parts[0])
    out += b"".join(frames.frame(frames.CONTINUATION, 0, 1, part) for part in parts[1:])
    return RawConnection([CLIENT_PREFACE, out + frames.frame(frames.CONTINUATION, 4, 1, b"")])


@RAW_CONNECTIONS.add(2)
def endless_headers(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws CONTINUATION frames without END_HEADERS."""
    body = rng.choice((b"", b"x", frames.block([("a", "b")])))
    more = frames.frame(frames.CONTINUATION, 0, 1, body) * rng.choice((1000, 5000))
    return RawConnection([CLIENT_PREFACE, request(flags=0) + more])


@RAW_CONNECTIONS.add(1)
def flood(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws thousands of frames, some of which require a response."""
    unit = rng.choice(
        [
            frames.frame(frames.PING, 0, 0, bytes(8)),
            frames.frame(frames.SETTINGS, 0, 0, b""),
            frames.settings(header_table_size=0) + frames.settings(header_table_size=1 << 30),
            frames.settings(initial_window=0) + frames.settings(initial_window=frames.MAX_WINDOW),
            frames.frame(frames.PRIORITY, 0, 1, bytes(3) + b"\5\1"),
            frames.frame(frames.PRIORITY, 0, 7, (7).to_bytes(4, "big") + b"\1"),
            frames.frame(frames.DATA, 0, 1, b""),
            frames.frame(frames.DATA, frames.PADDED, 1, b"\x05" + bytes(5)),
            frames.window(1, 1),
            frames.window(0, 1),
            frames.reset(1),
            frames.frame(0xBE, 0, 1, bytes(9)),
            frames.frame(frames.GOAWAY, 0, 0, bytes(8)),
            frames.setting_pairs((number, 1) for number in range(7, 60)),
        ]
    )
    path = rng.choice((f"{FEED}StreamBatches", f"{FEED}GetPipeline"))
    repeated = unit * (rng.choice((500, 5000, 20000)) // max(1, len(unit) // 20))
    return RawConnection([CLIENT_PREFACE + request(path=path), repeated], reads=rng.random() < 0.5)


@OVERLOADS.add()
def rapid_reset(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws streams that the client resets, or makes the server reset.

    The server ends the connection, unless it can answer the calls before it reads their resets.
    """
    path = rng.choice(METHODS)
    spec = catalog.specs["numbers"]
    body = open_request(spec) + b"".join(step_requests(spec, range(5)))
    provocation = rng.choice(
        [
            frames.reset,
            lambda number: frames.window(number, frames.MAX_WINDOW) * 2,
            lambda number: frames.window(number, 0),
            lambda number: frames.frame(frames.DATA, 1, number, body) * 2,
        ]
    )
    out = bytearray()
    for number in range(1, 2 * 1300, 2):
        out += request(number, path) + frames.frame(frames.DATA, 0, number, body)
        out += provocation(number)
    return RawConnection([CLIENT_PREFACE, bytes(out)])


@OVERLOADS.add()
def more_streams_than_there_may_be(rng: random.Random, catalog: Catalog) -> RawConnection:
    out = b"".join(request(number) for number in range(1, 2 * 520, 2))
    return RawConnection([CLIENT_PREFACE, out])


@RAW_CONNECTIONS.add(2)
def tiny_windows(rng: random.Random, catalog: Catalog) -> RawConnection:
    """Draws a stream of batches whose window is closed, or opens by few bytes."""
    spec = catalog.pipeline(rng)
    body = open_request(spec) + b"".join(step_requests(spec, range(4)))
    out = frames.PREFACE + frames.settings(initial_window=rng.choice((0, 1, 7)))
    out += request(1, f"{FEED}StreamBatches") + frames.frame(frames.DATA, 1, 1, body)
    steps = [frames.window(1, rng.choice((1, 3, 100))) for _ in range(rng.randint(0, 40))]
    steps += rng.choice(([], [frames.reset(1)], [frames.settings(initial_window=1 << 20)]))
    return RawConnection([out, *steps], abort=rng.random() < 0.3)
