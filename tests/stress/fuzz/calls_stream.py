"""Calls of StreamBatches: invalid requests, in any order, and cancelled at any point."""

from __future__ import annotations

import random
from typing import Any

from tests.stress.fuzz.calls import (
    FEED,
    Call,
    Catalog,
    batch_request,
    event,
    kind,
    open_request,
    step_requests,
)
from tests.stress.fuzz.odd import corrupt, mutate, odd_number
from tests.stress.fuzz.response_order import in_order

from infeed.shared.spec import PipelineSpec
from infeed.v1 import stream_pb2

PATH = f"{FEED}StreamBatches"

_CANCEL_SECONDS = 0.3
"""Time after which an endless stream is cancelled."""


def call(messages: list[bytes], *codes: str, **more: Any) -> Call:
    return Call(PATH, messages, codes=frozenset(codes), **more)


@kind(8)
def good_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a valid stream, which must be answered completely."""
    spec = catalog.pipeline(rng)
    steps = list(range(rng.randint(0, 6)))
    messages = [open_request(spec, finish=rng.randrange(3)), *step_requests(spec, steps)]
    return call(messages, "OK", check=in_order(steps))


@kind(5)
def wrong_order(rng: random.Random, catalog: Catalog) -> Call:
    spec = catalog.pipeline(rng)
    first, batches = open_request(spec), step_requests(spec, range(3))
    messages = rng.choice(
        [
            batches,
            [batches[0], first],
            [event()],
            [],
            [b""],
            [first, first],
            [first, batches[0], first],
            [first, event()],
            [first, batches[0], event(), batches[1]],
        ]
    )
    return call(messages, "INVALID_ARGUMENT", check=in_order([0], complete=False))


@kind(12)
def odd_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Draws odd values in the first messages: also ranks that wait for absent ones, far positions,
    or the id of another feed."""
    spec = catalog.pipeline(rng)
    size = spec.stride(spec.batch_size)
    opened = stream_pb2.StreamOpen(
        pipeline=spec.name, epochs=2, rank=rng.randrange(2), world_size=rng.randrange(4)
    )
    start = rng.choice((0, size, 10 * size, rng.randrange(1000)))
    batch = stream_pb2.BatchRequest(request_id=7, start=start, count=rng.choice((size, 1, 0)))
    opened.feed_id = rng.choice(("", "a", "b"))
    for _ in range(rng.randint(1, 3)):
        corrupt(rng, rng.choice((opened, opened, batch)))
    messages = [event(open=opened), event(batch=batch)]
    codes = ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")
    check = in_order([batch.request_id], complete=False)
    return call(messages, *codes, cancel_after_seconds=_CANCEL_SECONDS, check=check)


@kind(8)
def odd_requests(rng: random.Random, catalog: Catalog) -> Call:
    """Draws boundary values as positions and counts, after some valid requests."""
    spec = catalog.pipeline(rng)
    size = spec.stride(spec.batch_size)
    good = step_requests(spec, range(rng.randint(0, 3)))
    start, count = rng.choice(
        [
            (odd_number(rng), rng.randint(0, size)),
            (rng.randrange(100), odd_number(rng)),
            (odd_number(rng), odd_number(rng)),
        ]
    )
    messages = [open_request(spec), *good, batch_request(odd_number(rng) % (1 << 64), start, count)]
    is_invalid = not 0 <= start <= 1 << 62 or not 0 <= count <= size
    check = in_order(list(range(len(good))), complete=False) if is_invalid else None
    return call(messages, "INVALID_ARGUMENT" if is_invalid else "OK", check=check)


@kind(2)
def far_in_a_sequence(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a position that an endless data set takes years to reach."""
    messages = [
        open_request(catalog.specs["rows"], epochs=0),
        batch_request(1, rng.randint(1 << 40, 1 << 62), 5),
    ]
    return call(messages, "OK", cancel_after_seconds=rng.uniform(0, _CANCEL_SECONDS))


@kind(6)
def garbage_in_a_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Draws random bytes, or a request with changed bytes, among valid requests."""
    spec = catalog.specs[rng.choice(["numbers", "files"])]
    good = [open_request(spec), *step_requests(spec, range(rng.randint(1, 4)))]
    index = rng.randrange(len(good) + 1)
    if rng.random() < 0.5:
        bad = rng.randbytes(rng.randint(1, 80))
    else:
        bad = mutate(rng, good[min(index, len(good) - 1)])
    messages = [*good[:index], bad, *good[index:]]
    return call(messages, "OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")


@kind(0.1)
def thousands_outstanding(rng: random.Random, catalog: Catalog) -> Call:
    """Draws more requests than a stream may have; accepted ones are answered."""
    spec = catalog.specs["numbers"]
    batches = step_requests(spec, [0]) * rng.choice((500, 1100, 1500))
    return call(
        [open_request(spec), *batches],
        "OK",
        "INVALID_ARGUMENT",
        check=in_order([0] * len(batches), complete=False),
    )


@kind(8)
def left_at_any_point(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a valid stream that is truncated anywhere, and cancelled at once or shortly after."""
    spec: PipelineSpec = catalog.pipeline(rng)
    messages = [open_request(spec), *step_requests(spec, range(rng.randint(0, 30)))]
    delay = rng.choice((0.0, 0.0, 0.001, 0.02, 0.1))
    return Call(
        PATH, messages[: rng.randint(0, len(messages))], end=False, cancel_after_seconds=delay
    )
