"""Calls of methods that take one message, and what is no call at all."""

from __future__ import annotations

import random

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import (
    CALLS,
    FEED,
    HEALTH,
    PROPER,
    REFLECTION,
    Call,
    Catalog,
    codes,
    headers,
    numbers,
    strings,
)
from tests.stress.fuzz.case import mutated, pieces
from tests.stress.fuzz.peer import Answer

from infeed.v1 import feed_service_pb2 as service

UNARY = [
    f"{FEED}GetPipeline",
    f"{FEED}ListPipelines",
    f"{FEED}RegisterDataset",
    f"{HEALTH}Check",
]
METHODS = [*UNARY, f"{FEED}StreamBatches", f"{HEALTH}Watch", REFLECTION]


def get(name: str) -> bytes:
    return frames.message(service.GetPipelineRequest(name=name).SerializeToString())


@CALLS.add(3)
def odd_path(rng: random.Random, catalog: Catalog) -> Call:
    path = rng.choice(
        [
            "/",
            "*",
            "//",
            f"{FEED}getpipeline",
            f"{FEED}GetPipeline/",
            FEED,
            "/infeed.v1.FeedService",
            f"/../{FEED}",
            f"{FEED}%47etPipeline",
            "/" + strings(rng).encode().decode("latin-1").strip()[:9000],
            "/x" * rng.choice((10, 1000, 5000)),
        ]
    )
    path = "".join(char for char in path if char > " " and char != "\x7f") or "/"
    return Call(headers(path), [get("numbers")], codes=codes("UNIMPLEMENTED"))


@CALLS.add(3)
def odd_http(rng: random.Random, catalog: Catalog) -> Call:
    path = rng.choice(METHODS)
    if rng.random() < 0.5:
        method = rng.choice(["GET", "PUT", "HEAD", "OPTIONS", "post", "X" * 999, "POST0"])
        return Call(headers(path, p_method=method), [get("numbers")], codes=codes("HTTP 405"))
    content = rng.choice(
        [None, "", "text/html", "application/json", "application/grpc-web", "application/grpcx"]
    )
    return Call(headers(path, content_type=content), codes=codes("HTTP 415"))


@CALLS.add(2)
def odd_headers(rng: random.Random, catalog: Catalog) -> Call:
    """A good call with headers that say nothing, or nonsense."""
    more = [
        ("grpc-timeout", rng.choice(["", "1H", "0n", "-1S", "9" * 20 + "S", "x", "1u"])),
        ("grpc-encoding", rng.choice(["gzip", "identity", "deflate", "\xff", "zstd" * 99])),
        ("grpc-accept-encoding", "gzip," * rng.randint(1, 200)),
        ("user-agent", strings(rng).encode().decode("latin-1").strip() or "x"),
        ("x-bin", rng.choice(["", "====", "AAA", "!", "QUJD" * 500])),
        ("cookie", "a=b"),
        ("authorization", "Bearer " + "x" * rng.choice((0, 10, 4000))),
        ("content-type", "application/grpc"),
    ]
    chosen = [
        (name, "".join(char for char in value if char >= " " and char != "\x7f")[:4000].strip())
        for name, value in rng.sample(more, rng.randint(1, 3))
    ]
    changes = {"p_authority": rng.choice(["fuzz", "", "a:99999", "[::", "\xe4\xf6", "a" * 2000])}
    content = rng.choice(["application/grpc", "application/grpc+proto", "application/grpc;x=\xfc"])
    fields = headers(f"{FEED}GetPipeline", content_type=content, **changes)
    return Call([*fields, *chosen], [get("numbers")], codes=codes("OK"))


@CALLS.add(4)
def framing(rng: random.Random, catalog: Catalog) -> Call:
    """Lengths that are wrong, flags, no message, several of them."""
    path = rng.choice(METHODS)
    body = get("numbers")[5:]
    way = rng.randrange(7)
    if way == 0:
        data = frames.message(body, compressed=rng.choice((1, 2, 0xFF)))
        return Call(headers(path), [data], codes=codes("UNIMPLEMENTED"))
    if way == 1:
        length = rng.choice((65537, 1 << 20, 1 << 31, (1 << 32) - 1))
        data = frames.message(rng.randbytes(rng.randrange(2000)), length=length)
        return Call(headers(path), [data], rng.random() < 0.5, codes=codes("RESOURCE_EXHAUSTED"))
    if way == 2:
        data = frames.message(body)[: rng.randrange(1, len(body) + 5)]
        return Call(headers(path), [data], codes=codes("INTERNAL", "INVALID_ARGUMENT"))
    if way == 3:
        parts = rng.choice([[], [b""], [b"", b""]])
        return Call(headers(path), parts, codes=codes("UNIMPLEMENTED", "INVALID_ARGUMENT", "OK"))
    if way == 4 and path in UNARY:
        data = frames.message(b"") * rng.randint(2, 50)
        return Call(headers(path), [data], codes=codes("OK", "NOT_FOUND"))
    if way == 5 and path in UNARY:
        # The answer may come before the rest, which then nobody takes.
        data = get("numbers") + rng.randbytes(rng.randrange(1, 9000))
        return Call(
            headers(path),
            pieces(rng, data),
            codes=codes("OK", "NOT_FOUND", "INVALID_ARGUMENT", "INTERNAL"),
        )
    data = get("numbers")
    return Call(headers(f"{FEED}GetPipeline"), [bytes((it,)) for it in data], codes=codes("OK"))


@CALLS.add(5)
def garbage(rng: random.Random, catalog: Catalog) -> Call:
    """Bytes that are no message, or another one."""
    path = rng.choice(METHODS)
    body = rng.randbytes(rng.choice((1, 2, 3, 10, 100, 1000, 60000)))
    parts = pieces(rng, frames.message(body), 3)
    allowed = codes("INVALID_ARGUMENT", "INTERNAL", "OK", "NOT_FOUND")
    return Call(headers(path), parts, leave_seconds=_watched(path), codes=allowed)


@CALLS.add(5)
def mutated_message(rng: random.Random, catalog: Catalog) -> Call:
    path, good = rng.choice(
        [
            (f"{FEED}GetPipeline", get("numbers")[5:]),
            (f"{FEED}ListPipelines", b"\x08\x05\x12\x06photos"),
            (f"{HEALTH}Check", b"\x0a\x18infeed.v1.FeedService"),
            (REFLECTION, b"\x3a\x01*"),
        ]
    )
    data = frames.message(mutated(rng, good))
    allowed = codes("OK", "NOT_FOUND", "INVALID_ARGUMENT", "INTERNAL")
    return Call(headers(path), pieces(rng, data), codes=allowed)


@CALLS.add(3)
def deep_or_large(rng: random.Random, catalog: Catalog) -> Call:
    """Unknown fields, nested groups, numbers of too many bytes, strings that are no text."""
    nested = b""
    for _ in range(rng.choice((10, 100, 101, 3000))):
        nested = b"\x0a" + frames.integer(len(nested), 7)[:1] + nested[:100]
    body = rng.choice(
        [
            b"\x7b" * rng.choice((10, 200, 50000)),
            b"\x7b" * 50 + b"\x7c" * 50,
            nested,
            b"\x08" + b"\xff" * rng.choice((9, 10, 11, 1000)) + b"\x01",
            b"\xf8\xff\xff\xff\xff\x7f\x01",
            b"\x0a\xff\xff\xff\xff\x0f",
            b"\x0a\x04\xff\xfe\xc0\x80",
            b"\x0a\x03\xed\xa0\x80",
            b"\xa2\x06\x05hello" * rng.choice((1, 100, 5000)),
            b"\x0b" + b"\x0c",
            b"\x0c",
            b"\x00",
        ]
    )
    path = rng.choice(METHODS)
    allowed = codes("INVALID_ARGUMENT", "INTERNAL", "OK", "NOT_FOUND")
    parts = [frames.message(body)]
    return Call(headers(path), parts, leave_seconds=_watched(path), codes=allowed)


def _watched(path: str) -> float | None:
    """A good Watch never ends, so it is left."""
    return 0.2 if path.endswith("Watch") else None


@CALLS.add(4)
def odd_pages(rng: random.Random, catalog: Catalog) -> Call:
    size = numbers(rng, 32)
    request = service.ListPipelinesRequest(page_size=size, page_token=strings(rng))
    if len(data := request.SerializeToString()) > 65000:
        request.page_token = ""
        data = request.SerializeToString()

    def check(answer: Answer) -> str | None:
        if answer.status != "0":
            return None
        page = service.ListPipelinesResponse.FromString(bytes(answer.data[5:]))
        names = [pipeline.name for pipeline in page.pipelines]
        want = sorted(name for name in catalog.specs if name > request.page_token)[: size or 100]
        return None if names == want else f"pipelines {names}, not {want}"

    allowed = codes("INVALID_ARGUMENT" if size < 0 else "OK")
    return Call(headers(f"{FEED}ListPipelines"), [frames.message(data)], codes=allowed, check=check)


@CALLS.add(4)
def unknown_pipeline(rng: random.Random, catalog: Catalog) -> Call:
    return Call(headers(f"{FEED}GetPipeline"), [get(strings(rng))], codes=codes("NOT_FOUND"))


@CALLS.add(3)
def given_up(rng: random.Random, catalog: Catalog) -> Call:
    """A good call that its peer leaves, at any point."""
    parts = pieces(rng, get("numbers"))[: rng.randint(0, 6)]
    # A server that is quicker than the leaving answers a message that ends early.
    early = PROPER | codes("INTERNAL")
    end = rng.random() < 0.3
    return Call(headers(f"{FEED}GetPipeline"), parts, codes=early, end=end, leave_seconds=0.0)
