"""Calls of unary methods and of health checks, with invalid messages."""

from __future__ import annotations

import random

from grpc_health.v1 import health_pb2
from tests.stress.fuzz.calls import (
    FEED,
    HEALTH,
    Call,
    Catalog,
    kind,
)
from tests.stress.fuzz.odd import mutate, odd_number, odd_string

from infeed.v1 import feed_service_pb2 as service

METHODS = (
    *(f"{FEED}{name}" for name in ("GetPipeline", "ListPipelines", "RegisterDataset")),
    *(f"{FEED}StreamBatches", f"{HEALTH}Check", f"{HEALTH}Watch"),
)

_WATCH_SECONDS = 0.2
"""Time after which a watch is cancelled: a valid one never ends."""

_PARSED = frozenset(("OK", "NOT_FOUND", "INVALID_ARGUMENT"))


def get(name: str) -> bytes:
    return service.GetPipelineRequest(name=name).SerializeToString()


def _call(method: str, message: bytes) -> Call:
    watched = _WATCH_SECONDS if method.endswith("Watch") else None
    return Call(method, [message], cancel_after_seconds=watched, codes=_PARSED)


@kind(3)
def other_messages(rng: random.Random, catalog: Catalog) -> Call:
    """Draws an unknown method, no message, several, or one that is too large."""
    variant = rng.randrange(4)
    if variant == 0:
        path = rng.choice(("/x/y", f"{FEED}getpipeline", f"{FEED}GetPipeline/", "/x" * 1000))
        return Call(path, [get("numbers")], codes=frozenset(("UNIMPLEMENTED",)))
    if variant == 1:
        method = rng.choice(METHODS)
        return Call(method, codes=frozenset(("INVALID_ARGUMENT",)))
    if variant == 2:
        # The first one counts.
        return Call(f"{FEED}GetPipeline", [get("numbers")] * 50, codes=frozenset(("OK",)))
    size = rng.choice((65537, 1 << 20))
    return Call(
        rng.choice(METHODS), [rng.randbytes(size)], codes=frozenset(("RESOURCE_EXHAUSTED",))
    )


@kind(5)
def mutated_message(rng: random.Random, catalog: Catalog) -> Call:
    method, good = rng.choice(
        [
            (f"{FEED}GetPipeline", get("numbers")),
            (f"{FEED}ListPipelines", b"\x08\x05\x12\x06photos"),
            (f"{HEALTH}Check", b"\x0a\x18infeed.v1.FeedService"),
        ]
    )
    return _call(method, mutate(rng, good))


@kind(8)
def garbage(rng: random.Random, catalog: Catalog) -> Call:
    """Draws random bytes, unknown fields, nested groups, overlong numbers, or invalid UTF-8."""
    body = rng.choice(
        [
            *(rng.randbytes(size) for size in (1, 2, 3, 10, 100, 1000, 60000)),
            b"\x7b" * rng.choice((10, 200, 50000)),
            b"\x08" + b"\xff" * rng.choice((9, 10, 11, 1000)) + b"\x01",
            b"\x0a\xff\xff\xff\xff\x0f",
            b"\x0a\x04\xff\xfe\xc0\x80",
            b"\xa2\x06\x05hello" * rng.choice((1, 100, 5000)),
        ]
    )
    return _call(rng.choice(METHODS), body)


@kind(4)
def odd_pages(rng: random.Random, catalog: Catalog) -> Call:
    size = odd_number(rng, 32)
    request = service.ListPipelinesRequest(page_size=size, page_token=odd_string(rng)[:20000])

    def check(responses: list[bytes]) -> str | None:
        if not responses:
            return None
        page = service.ListPipelinesResponse.FromString(responses[0])
        names = [pipeline.name for pipeline in page.pipelines]
        following = sorted(name for name in catalog.specs if name > request.page_token)
        expected = following[: size or 100]
        return None if names == expected else f"pipelines {names}, not {expected}"

    codes = frozenset(("INVALID_ARGUMENT" if size < 0 else "OK",))
    return Call(f"{FEED}ListPipelines", [request.SerializeToString()], codes=codes, check=check)


@kind(4)
def unknown_names(rng: random.Random, catalog: Catalog) -> Call:
    name = odd_string(rng) + str(rng.random())
    if rng.random() < 0.5:
        return Call(f"{FEED}GetPipeline", [get(name)], codes=frozenset(("NOT_FOUND",)))
    body = health_pb2.HealthCheckRequest(service=name).SerializeToString()
    method = HEALTH + rng.choice(("Watch", "Check"))
    return Call(method, [body], codes=frozenset(("NOT_FOUND",)))
