"""Calls of StreamBatches: invalid requests, in any order, and cancelled at any point."""

from __future__ import annotations

import random

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import (
    CALLS,
    FEED,
    Call,
    Catalog,
    batch_request,
    codes,
    event,
    headers,
    odd_number,
    odd_string,
    open_request,
    step_requests,
)
from tests.stress.fuzz.case import mutate, random_pieces
from tests.stress.fuzz.response_order import in_order

from infeed.shared.spec import PipelineSpec
from infeed.v1 import stream_pb2

PATH = f"{FEED}StreamBatches"

_CANCEL_SECONDS = 0.3
"""Time after which an endless stream is cancelled."""


def call(parts: list[bytes], *names: str, **more: object) -> Call:
    return Call(headers(PATH), parts, codes=codes(*names), **more)


@CALLS.add(8)
def good_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a valid stream in random pieces, which must be answered completely."""
    spec = catalog.pipeline(rng)
    steps = list(range(rng.randint(0, 6)))
    finish = rng.randrange(3)
    data = open_request(spec, finish=finish) + b"".join(step_requests(spec, steps))
    return call(random_pieces(rng, data), "OK", check=in_order(steps))


@CALLS.add(5)
def wrong_order(rng: random.Random, catalog: Catalog) -> Call:
    spec = catalog.pipeline(rng)
    first, batches = open_request(spec), step_requests(spec, range(3))
    parts = rng.choice(
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
    return call(parts, "INVALID_ARGUMENT", check=in_order([0], complete=False))


@CALLS.add(8)
def odd_open(rng: random.Random, catalog: Catalog) -> Call:
    """Draws an open message with one or two boundary values."""
    spec = catalog.pipeline(rng)
    odd = {
        "seed": odd_number(rng),
        "batch_size": odd_number(rng),
        "finish": odd_number(rng, 32),
        "epochs": odd_number(rng),
    }
    chosen = {name: odd[name] for name in rng.sample(sorted(odd), rng.choice((1, 1, 2)))}
    parts = [open_request(spec, **chosen), batch_request(7, 0, 1)]
    # An accepted stream is answered, unless it must read very far.
    return call(parts, "OK", "INVALID_ARGUMENT", check=in_order([7], complete=False))


@CALLS.add(4)
def odd_trainer(rng: random.Random, catalog: Catalog) -> Call:
    """Draws invalid ranks, ranks that wait for absent ones, or feeds with another feed's id."""
    spec = catalog.pipeline(rng)
    odd = {
        "rank": rng.choice((odd_number(rng), rng.randrange(3))),
        "world_size": rng.choice((odd_number(rng), rng.randrange(4))),
        "feed_id": rng.choice(("", "a", "b", odd_string(rng))),
    }
    chosen = {name: odd[name] for name in rng.sample(sorted(odd), rng.randint(1, 3))}
    size = spec.stride(spec.batch_size)
    start = rng.choice((0, size, 10 * size, rng.randrange(1000)))
    batch = stream_pb2.BatchRequest(
        request_id=7,
        start=start,
        count=rng.choice((size, 1, 0)),
        min_position_count=rng.choice((0, start, start + size, odd_number(rng))),
        step_end=rng.choice((0, 0, start + size, odd_number(rng))),
    )
    parts = [open_request(spec, **chosen), event(batch=batch)]
    check = in_order([7], complete=False)
    return call(parts, "OK", "INVALID_ARGUMENT", cancel_after_seconds=_CANCEL_SECONDS, check=check)


@CALLS.add(4)
def refused_open(rng: random.Random, catalog: Catalog) -> Call:
    spec = catalog.pipeline(rng)
    change, code = rng.choice(
        [
            ({"pipeline": odd_string(rng)}, "NOT_FOUND"),
            ({"fingerprint": odd_string(rng) + "0"}, "FAILED_PRECONDITION"),
            ({"fingerprint": spec.fingerprint[:-1]}, "FAILED_PRECONDITION"),
            ({"seed": rng.randint(-(1 << 63), -1)}, "INVALID_ARGUMENT"),
            ({"batch_size": rng.randint(-(1 << 63), -1)}, "INVALID_ARGUMENT"),
            ({"batch_size": rng.randint((1 << 17) + 1, (1 << 63) - 1)}, "INVALID_ARGUMENT"),
            ({"epochs": rng.randint(-(1 << 63), -1)}, "INVALID_ARGUMENT"),
        ]
    )
    return call([open_request(spec, **change), batch_request(1, 0, 1)], code)


@CALLS.add(8)
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
    parts = [open_request(spec), *good, batch_request(odd_number(rng) % (1 << 64), start, count)]
    is_invalid = not 0 <= start <= 1 << 62 or not 0 <= count <= size
    check = in_order(list(range(len(good))), complete=False) if is_invalid else None
    return call(parts, "INVALID_ARGUMENT" if is_invalid else "OK", check=check)


@CALLS.add(2)
def far_in_a_sequence(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a position that an endless data set takes years to reach."""
    parts = [
        open_request(catalog.specs["rows"], epochs=0),
        batch_request(1, rng.randint(1 << 40, 1 << 62), 5),
    ]
    return call(parts, "OK", cancel_after_seconds=rng.uniform(0, _CANCEL_SECONDS))


@CALLS.add(6)
def garbage_in_a_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Draws random bytes, or a request with changed bytes, among valid requests."""
    spec = catalog.specs[rng.choice(["numbers", "files"])]
    good = [open_request(spec), *step_requests(spec, range(rng.randint(1, 4)))]
    index = rng.randrange(len(good) + 1)
    if rng.random() < 0.5:
        bad = frames.message(rng.randbytes(rng.randint(1, 80)))
    else:
        bad = frames.message(mutate(rng, good[min(index, len(good) - 1)][5:]))
    parts = [*good[:index], bad, *good[index:]]
    known = ("NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
    return call(parts, "OK", "INVALID_ARGUMENT", "INTERNAL", *known)


@CALLS.add(4)
def broken_framing(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a stream with changed bytes, also in the messages' lengths."""
    spec = catalog.specs[rng.choice(["numbers", "files"])]
    good = open_request(spec) + b"".join(step_requests(spec, range(3)))
    known = ("NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
    parts = random_pieces(rng, mutate(rng, good))
    return call(parts, "OK", "INVALID_ARGUMENT", "INTERNAL", *known)


@CALLS.add(0.1)
def thousands_outstanding(rng: random.Random, catalog: Catalog) -> Call:
    """Draws more requests than a stream may have; accepted ones are answered."""
    spec = catalog.specs["numbers"]
    batches = step_requests(spec, [0]) * rng.choice((500, 1100, 1500))
    parts = [open_request(spec)]
    parts += [b"".join(batches[start : start + 500]) for start in range(0, len(batches), 500)]
    return call(parts, "OK", "INVALID_ARGUMENT", check=in_order([0] * len(batches), complete=False))


@CALLS.add(8)
def left_at_any_point(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a valid stream that is truncated anywhere, and cancelled at once or shortly after."""
    spec: PipelineSpec = catalog.pipeline(rng)
    data = open_request(spec) + b"".join(step_requests(spec, range(rng.randint(0, 30))))
    parts = random_pieces(rng, data[: rng.randint(0, len(data))], 3)
    delay = rng.choice((0.0, 0.0, 0.001, 0.02, 0.1))
    return Call(headers(PATH), parts, end=False, cancel_after_seconds=delay)


@CALLS.add(3)
def silent_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a stream with few requests or none, then silent until it is cancelled."""
    spec = catalog.pipeline(rng)
    steps = list(range(rng.randint(0, 3)))
    parts = [open_request(spec), *step_requests(spec, steps)]
    check = in_order(steps, complete=False)
    return call(parts, "OK", end=False, cancel_after_seconds=_CANCEL_SECONDS, check=check)
