"""Kinds of hostile calls: functions that draw one, with their relative frequencies in `KINDS`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.stress.fuzz.calls import Call, in_order
from tests.stress.fuzz.odd import corrupt, mutate, odd_number, odd_string

from infeed.shared.spec import PipelineSpec
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2

FEED = "/infeed.v1.FeedService/"
HEALTH = "/grpc.health.v1.Health/"
METHODS = (
    *(f"{FEED}{name}" for name in ("GetPipeline", "ListPipelines", "RegisterDataset")),
    *(f"{FEED}{name}" for name in ("DescribeSlots", "FindSample", "StreamBatches")),
    *(f"{HEALTH}Check", f"{HEALTH}Watch"),
)

_CANCEL_SECONDS = 0.3
"""Time after which an endless stream, or a watch, is cancelled."""

_REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")

Specs = dict[str, PipelineSpec]
Draw = Callable[[random.Random, Specs], Call]


def event(**values: Any) -> bytes:
    """Returns a StreamBatchesRequest."""
    return stream_pb2.StreamBatchesRequest(**values).SerializeToString()


def opening(spec: PipelineSpec, **changes: Any) -> bytes:
    return event(open=stream_pb2.StreamOpen(**{"pipeline": spec.name, "epochs": 2, **changes}))


def batch(request_id: int, start: int, count: int) -> bytes:
    return event(batch=stream_pb2.BatchRequest(request_id=request_id, start=start, count=count))


def steps(spec: PipelineSpec, numbers: Sequence[int]) -> list[bytes]:
    """Returns the requests of one rank's steps."""
    size = spec.stride(spec.batch_size)
    return [batch(number, number * size, size) for number in numbers]


def get(name: str) -> bytes:
    return service.GetPipelineRequest(name=name).SerializeToString()


def any_spec(rng: random.Random, specs: Specs) -> PipelineSpec:
    """Returns a pipeline, mostly an inexpensive one."""
    return specs[rng.choices(["numbers", "files", "rows", "photos"], [6, 2, 2, 1])[0]]


def stream(messages: list[bytes], *codes: str, **more: Any) -> Call:
    return Call(f"{FEED}StreamBatches", messages, frozenset(codes), **more)


def unary(method: str, messages: list[bytes], *codes: str) -> Call:
    watched = _CANCEL_SECONDS if method.endswith("Watch") else None
    return Call(method, messages, frozenset(codes), cancel_after_seconds=watched)


def good_stream(rng: random.Random, specs: Specs) -> Call:
    """Draws a valid stream, which must be answered completely."""
    spec, numbers = any_spec(rng, specs), list(range(rng.randint(0, 6)))
    messages = [opening(spec, finish=rng.randrange(3)), *steps(spec, numbers)]
    return stream(messages, "OK", check=in_order(numbers))


def wrong_order(rng: random.Random, specs: Specs) -> Call:
    spec = any_spec(rng, specs)
    first, batches = opening(spec), steps(spec, range(3))
    choices = [batches, [batches[0], first], [event()], [], [b""], [first, first]]
    choices += [[first, batches[0], first], [first, event()]]
    choices += [[first, batches[0], event(), batches[1]]]
    return stream(rng.choice(choices), "INVALID_ARGUMENT", check=in_order([0], complete=False))


def odd_stream(rng: random.Random, specs: Specs) -> Call:
    """Draws odd values in the first messages: also ranks that wait for absent ones, far positions,
    or the id of another feed."""
    spec = any_spec(rng, specs)
    size = spec.stride(spec.batch_size)
    opened = stream_pb2.StreamOpen(
        pipeline=spec.name, epochs=2, rank=rng.randrange(2), world_size=rng.randrange(4)
    )
    start = rng.choice((0, size, 10 * size, rng.randrange(1000)))
    request = stream_pb2.BatchRequest(request_id=7, start=start, count=rng.choice((size, 1, 0)))
    opened.feed_id = rng.choice(("", "a", "b"))
    for _ in range(rng.randint(1, 3)):
        corrupt(rng, rng.choice((opened, opened, request)))
    messages = [event(open=opened), event(batch=request)]
    check = in_order([request.request_id], complete=False)
    codes = ("OK", *_REFUSALS, "RESOURCE_EXHAUSTED")  # two long strings make a message too large
    return stream(messages, *codes, cancel_after_seconds=_CANCEL_SECONDS, check=check)


def run_of(rng: random.Random, spec: PipelineSpec) -> service.Run:
    """Draws a run of one segment or more, or of none, that the pipeline can have."""
    run = service.Run(pipeline=spec.name, seed=rng.randrange(9))
    count, size = spec.sample_count or 64, spec.batch_size
    for step in range(0, rng.choice((0, 0, 1, 2, 5)) * count, count):
        run.lineage.segments.add(
            step=step,
            start=step * size,
            pipeline=spec.name,
            fingerprint=spec.fingerprint,
            seed=run.seed,
            batch_size=size,
            world_size=1,
            epoch=step * size // count,
            epoch_end=step * size + count,
            sample_count=count,
            shuffle=spec.shuffle_mode,
        )
    return run


def amended_stream(rng: random.Random, specs: Specs) -> Call:
    """Draws a run of several segments, with odd values in some of them."""
    spec = any_spec(rng, specs)
    run, size = run_of(rng, spec), spec.stride(spec.batch_size)
    changes = rng.randint(0, 2)
    for _ in range(changes):
        corrupt(rng, run.lineage)
    start = rng.choice((0, 10 * size, rng.randrange(1000), 1 << 60))
    messages = [opening(spec, seed=run.seed, lineage=run.lineage), batch(7, start, size)]
    codes = ("OK", *_REFUSALS, "RESOURCE_EXHAUSTED")
    return stream(messages, *codes, check=in_order([7], complete=False))


def described_slots(rng: random.Random, specs: Specs) -> Call:
    """Draws positions of a run, and odd values in most requests."""
    spec = any_spec(rng, specs)
    request = service.DescribeSlotsRequest(
        run=run_of(rng, spec),
        start=rng.choice((0, rng.randrange(1000), 1 << 60)),
        count=rng.choice((1, 7, 100)),
        draws=rng.random() < 0.2,
    )
    good = request.SerializeToString()
    for _ in range(rng.randint(0, 3)):
        corrupt(rng, rng.choice((request, request.run, request.run.lineage)))

    def check(responses: list[bytes]) -> str | None:
        slots = [
            s for data in responses for s in service.DescribeSlotsResponse.FromString(data).slots
        ]
        found = [slot.position - request.start for slot in slots]
        is_complete = found == [*range(len(found))] and len(found) in (0, request.count)
        return None if is_complete else f"positions {found}"

    is_good = request.SerializeToString() == good and spec.name != "rows"
    codes = ("OK",) if is_good else ("OK", *_REFUSALS, "RESOURCE_EXHAUSTED")
    return Call(f"{FEED}DescribeSlots", [request.SerializeToString()], frozenset(codes), check)


def searched_sample(rng: random.Random, specs: Specs) -> Call:
    """Draws a sample by index, file, label or an odd name, and odd values in most requests."""
    spec = any_spec(rng, specs)
    names = ("0", "47", "48", "-1", "3.jpeg", "label:7", "label:x", "table:1", "a@0", ":", "@")
    request = service.FindSampleRequest(
        run=run_of(rng, spec),
        sample=rng.choice((*names, odd_string(rng))),
        epochs=rng.choice((1, 3, 10_000)),
    )
    for _ in range(rng.randint(0, 3)):
        corrupt(rng, rng.choice((request, request.run, request.run.lineage)))
    return unary(
        f"{FEED}FindSample",
        [request.SerializeToString()],
        *("OK", *_REFUSALS, "RESOURCE_EXHAUSTED"),
    )


def odd_requests(rng: random.Random, specs: Specs) -> Call:
    """Draws boundary values as positions and counts, after some valid requests."""
    spec = any_spec(rng, specs)
    size = spec.stride(spec.batch_size)
    good = steps(spec, range(rng.randint(0, 3)))
    start = rng.choice((odd_number(rng), rng.randrange(100)))
    count = rng.choice((odd_number(rng), rng.randint(0, size)))
    messages = [opening(spec), *good, batch(odd_number(rng) % (1 << 64), start, count)]
    is_invalid = not 0 <= start <= 1 << 62 or not 0 <= count <= size
    check = in_order(list(range(len(good))), complete=False) if is_invalid else None
    return stream(messages, "INVALID_ARGUMENT" if is_invalid else "OK", check=check)


def far_in_a_sequence(rng: random.Random, specs: Specs) -> Call:
    """Draws a position that an endless data set takes years to reach."""
    messages = [opening(specs["rows"], epochs=0), batch(1, rng.randint(1 << 40, 1 << 62), 5)]
    return stream(messages, "OK", cancel_after_seconds=rng.uniform(0, _CANCEL_SECONDS))


def garbage_in_a_stream(rng: random.Random, specs: Specs) -> Call:
    """Draws random bytes, or a request with changed bytes, among valid requests."""
    spec = specs[rng.choice(["numbers", "files"])]
    good = [opening(spec), *steps(spec, range(rng.randint(1, 4)))]
    index = rng.randrange(len(good) + 1)
    changed = mutate(rng, good[min(index, len(good) - 1)])
    bad = rng.choice((rng.randbytes(rng.randint(1, 80)), changed))
    return stream([*good[:index], bad, *good[index:]], "OK", *_REFUSALS)


def left_at_any_point(rng: random.Random, specs: Specs) -> Call:
    """Draws a valid stream that is truncated anywhere, and cancelled at once or shortly after."""
    spec = any_spec(rng, specs)
    messages = [opening(spec), *steps(spec, range(rng.randint(0, 30)))]
    del messages[rng.randint(0, len(messages)) :]
    delay = rng.choice((0.0, 0.0, 0.001, 0.02, 0.1))
    return Call(f"{FEED}StreamBatches", messages, cancel_after_seconds=delay, end=False)


def wrong_number_or_size(rng: random.Random, specs: Specs) -> Call:
    """Draws no message, several, where the first one counts, or one that is too large."""
    large = rng.randbytes(rng.choice((65537, 1 << 20)))
    choices = [
        unary(rng.choice(METHODS), [], "INVALID_ARGUMENT"),
        unary(f"{FEED}GetPipeline", [get("numbers")] * 50, "OK"),
        Call(rng.choice(METHODS), [large], frozenset(("RESOURCE_EXHAUSTED",))),
    ]
    return rng.choice(choices)


def mutated_message(rng: random.Random, specs: Specs) -> Call:
    choices = [
        (f"{FEED}GetPipeline", get("numbers")),
        (f"{FEED}ListPipelines", b"\x08\x05\x12\x06photos"),
        (f"{HEALTH}Check", b"\x0a\x18infeed.v1.FeedService"),
    ]
    method, good = rng.choice(choices)
    return unary(method, [mutate(rng, good)], "OK", *_REFUSALS)


def garbage(rng: random.Random, specs: Specs) -> Call:
    """Draws random bytes, unknown fields, nested groups, overlong numbers, or invalid UTF-8."""
    choices = [
        *(rng.randbytes(size) for size in (1, 2, 3, 10, 100, 1000, 60000)),
        b"\x7b" * rng.choice((10, 200, 50000)),
        b"\x08" + b"\xff" * rng.choice((9, 10, 11, 1000)) + b"\x01",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a\x04\xff\xfe\xc0\x80",
        b"\xa2\x06\x05hello" * rng.choice((1, 100, 5000)),
    ]
    return unary(rng.choice(METHODS), [rng.choice(choices)], "OK", *_REFUSALS)


KINDS: dict[Draw, float] = {
    good_stream: 8,
    wrong_order: 5,
    odd_stream: 12,
    odd_requests: 8,
    amended_stream: 4,
    described_slots: 6,
    searched_sample: 4,
    far_in_a_sequence: 2,
    garbage_in_a_stream: 6,
    left_at_any_point: 8,
    wrong_number_or_size: 2,
    mutated_message: 5,
    garbage: 8,
}
