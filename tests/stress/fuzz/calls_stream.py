"""Calls of StreamBatches: what no trainer would say, in any order, and left at any point."""

from __future__ import annotations

import random

from tests.stress.fuzz import frames
from tests.stress.fuzz.answers import ordered
from tests.stress.fuzz.calls import (
    CALLS,
    FEED,
    Call,
    Catalog,
    asked_in_order,
    asking,
    codes,
    event,
    headers,
    numbers,
    opening,
    strings,
)
from tests.stress.fuzz.case import mutated, pieces

from infeed.spec import PipelineSpec
from infeed.v1 import stream_pb2

PATH = f"{FEED}StreamBatches"

_LONG_SECONDS = 0.3
"""For a stream that would go on for ever."""


def call(parts: list[bytes], *names: str, **more: object) -> Call:
    return Call(headers(PATH), parts, codes=codes(*names), **more)


@CALLS.add(8)
def good_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Cut and sent in any pieces, it is answered in full."""
    spec = catalog.pipeline(rng)
    asked = list(range(rng.randint(0, 6)))
    finish = rng.randrange(3)
    data = opening(spec, finish=finish) + b"".join(asked_in_order(spec, asked))
    return call(pieces(rng, data), "OK", check=ordered(asked))


@CALLS.add(5)
def wrong_order(rng: random.Random, catalog: Catalog) -> Call:
    spec = catalog.pipeline(rng)
    first, batches = opening(spec), asked_in_order(spec, range(3))
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
    return call(parts, "INVALID_ARGUMENT", check=ordered([0], whole=False))


@CALLS.add(8)
def odd_open(rng: random.Random, catalog: Catalog) -> Call:
    """Values at their ends, one or two at a time."""
    spec = catalog.pipeline(rng)
    odd = {
        "seed": numbers(rng),
        "batch_size": numbers(rng),
        "finish": numbers(rng, 32),
        "epochs": numbers(rng),
    }
    chosen = {name: odd[name] for name in rng.sample(sorted(odd), rng.choice((1, 1, 2)))}
    parts = [opening(spec, **chosen), asking(7, 0, 1)]
    # A stream that is accepted is answered, but for one that must read very far.
    return call(parts, "OK", "INVALID_ARGUMENT", check=ordered([7], whole=False))


@CALLS.add(4)
def odd_trainer(rng: random.Random, catalog: Catalog) -> Call:
    """Ranks that cannot be, or that wait for others who never come; feeds with another's name."""
    spec = catalog.pipeline(rng)
    odd = {
        "rank": rng.choice((numbers(rng), rng.randrange(3))),
        "world_size": rng.choice((numbers(rng), rng.randrange(4))),
        "feed_id": rng.choice(("", "a", "b", strings(rng))),
    }
    chosen = {name: odd[name] for name in rng.sample(sorted(odd), rng.randint(1, 3))}
    size = spec.stride(spec.batch_size)
    start = rng.choice((0, size, 10 * size, rng.randrange(1000)))
    batch = stream_pb2.BatchRequest(
        request_id=7,
        start=start,
        count=rng.choice((size, 1, 0)),
        min_position_count=rng.choice((0, start, start + size, numbers(rng))),
        step_end=rng.choice((0, 0, start + size, numbers(rng))),
    )
    parts = [opening(spec, **chosen), event(batch=batch)]
    check = ordered([7], whole=False)
    return call(parts, "OK", "INVALID_ARGUMENT", leave_seconds=_LONG_SECONDS, check=check)


@CALLS.add(4)
def refused_open(rng: random.Random, catalog: Catalog) -> Call:
    spec = catalog.pipeline(rng)
    name, wanted = rng.choice(
        [
            ({"pipeline": strings(rng)}, "NOT_FOUND"),
            ({"fingerprint": strings(rng) + "0"}, "FAILED_PRECONDITION"),
            ({"fingerprint": spec.fingerprint[:-1]}, "FAILED_PRECONDITION"),
            ({"seed": rng.randint(-(1 << 63), -1)}, "INVALID_ARGUMENT"),
            ({"batch_size": rng.randint(-(1 << 63), -1)}, "INVALID_ARGUMENT"),
            ({"batch_size": rng.randint((1 << 17) + 1, (1 << 63) - 1)}, "INVALID_ARGUMENT"),
            ({"epochs": rng.randint(-(1 << 63), -1)}, "INVALID_ARGUMENT"),
        ]
    )
    return call([opening(spec, **name), asking(1, 0, 1)], wanted)


@CALLS.add(8)
def odd_requests(rng: random.Random, catalog: Catalog) -> Call:
    """Positions and counts at their ends, after some good ones."""
    spec = catalog.pipeline(rng)
    size = spec.stride(spec.batch_size)
    good = asked_in_order(spec, range(rng.randint(0, 3)))
    start, count = rng.choice(
        [
            (numbers(rng), rng.randint(0, size)),
            (rng.randrange(100), numbers(rng)),
            (numbers(rng), numbers(rng)),
        ]
    )
    parts = [opening(spec), *good, asking(numbers(rng) % (1 << 64), start, count)]
    bad = not 0 <= start <= 1 << 62 or not 0 <= count <= size
    wanted = "INVALID_ARGUMENT" if bad else "OK"
    return call(parts, wanted, check=ordered(list(range(len(good))), whole=False) if bad else None)


@CALLS.add(2)
def far_in_a_sequence(rng: random.Random, catalog: Catalog) -> Call:
    """A position that an endless data set takes years to reach."""
    parts = [opening(catalog.specs["rows"], epochs=0), asking(1, rng.randint(1 << 40, 1 << 62), 5)]
    return call(parts, "OK", leave_seconds=rng.uniform(0, _LONG_SECONDS))


@CALLS.add(6)
def garbage_in_a_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Among good requests: bytes, or a request with some of its bytes changed."""
    spec = catalog.specs[rng.choice(["numbers", "files"])]
    good = [opening(spec), *asked_in_order(spec, range(rng.randint(1, 4)))]
    at = rng.randrange(len(good) + 1)
    if rng.random() < 0.5:
        bad = frames.message(rng.randbytes(rng.randint(1, 80)))
    else:
        bad = frames.message(mutated(rng, good[min(at, len(good) - 1)][5:]))
    parts = [*good[:at], bad, *good[at:]]
    known = ("NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
    return call(parts, "OK", "INVALID_ARGUMENT", "INTERNAL", *known)


@CALLS.add(4)
def broken_framing(rng: random.Random, catalog: Catalog) -> Call:
    """The stream's bytes with some of them changed, messages' lengths too."""
    spec = catalog.specs[rng.choice(["numbers", "files"])]
    good = opening(spec) + b"".join(asked_in_order(spec, range(3)))
    known = ("NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
    parts = pieces(rng, mutated(rng, good))
    return call(parts, "OK", "INVALID_ARGUMENT", "INTERNAL", *known)


@CALLS.add(0.1)
def thousands_outstanding(rng: random.Random, catalog: Catalog) -> Call:
    """More than a stream may have; what was taken before is answered."""
    spec = catalog.specs["numbers"]
    batches = asked_in_order(spec, [0]) * rng.choice((500, 1100, 1500))
    parts = [opening(spec)]
    parts += [b"".join(batches[at : at + 500]) for at in range(0, len(batches), 500)]
    return call(parts, "OK", "INVALID_ARGUMENT", check=ordered([0] * len(batches), whole=False))


@CALLS.add(8)
def left_at_any_point(rng: random.Random, catalog: Catalog) -> Call:
    """A good stream that is cut off anywhere, ended or not, and left at once or a little later."""
    spec: PipelineSpec = catalog.pipeline(rng)
    data = opening(spec) + b"".join(asked_in_order(spec, range(rng.randint(0, 30))))
    parts = pieces(rng, data[: rng.randint(0, len(data))], 3)
    later = rng.choice((0.0, 0.0, 0.001, 0.02, 0.1))
    return Call(headers(PATH), parts, end=False, leave_seconds=later)


@CALLS.add(3)
def silent_stream(rng: random.Random, catalog: Catalog) -> Call:
    """Open, asked for nothing or for a little, then silent until it is left."""
    spec = catalog.pipeline(rng)
    asked = list(range(rng.randint(0, 3)))
    parts = [opening(spec), *asked_in_order(spec, asked)]
    check = ordered(asked, whole=False)
    return call(parts, "OK", end=False, leave_seconds=_LONG_SECONDS, check=check)
