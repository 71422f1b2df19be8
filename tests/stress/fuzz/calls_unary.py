"""Calls of unary methods, and invalid HTTP requests."""

from __future__ import annotations

import random

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import (
    ALLOWED_CODES,
    CALLS,
    FEED,
    HEALTH,
    REFLECTION,
    Call,
    Catalog,
    codes,
    headers,
    odd_number,
    odd_string,
)
from tests.stress.fuzz.case import mutate, random_pieces
from tests.stress.fuzz.peer import Response

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
            "/" + odd_string(rng).encode().decode("latin-1").strip()[:9000],
            "/x" * rng.choice((10, 1000, 5000)),
        ]
    )
    path = "".join(char for char in path if char > " " and char != "\x7f") or "/"
    return Call(headers(path), [get("numbers")], codes=codes("UNIMPLEMENTED", "RESOURCE_EXHAUSTED"))


@CALLS.add(3)
def odd_http(rng: random.Random, catalog: Catalog) -> Call:
    path = rng.choice(METHODS)
    if rng.random() < 0.5:
        method = rng.choice(["GET", "PUT", "HEAD", "OPTIONS", "post", "X" * 999, "POST0"])
        return Call(
            headers(path, p_method=method),
            [get("numbers")],
            codes=ALLOWED_CODES | codes("INTERNAL", "reset 2"),
        )
    content = rng.choice(
        [None, "", "text/html", "application/json", "application/grpc-web", "application/grpcx"]
    )
    return Call(
        headers(path, content_type=content),
        codes=ALLOWED_CODES | codes("INTERNAL", "HTTP 415", "reset 2"),
    )


_TIMEOUTS = {
    "1H": ("OK",),
    **dict.fromkeys(("0n", "1u"), ("OK", "DEADLINE_EXCEEDED")),
    **dict.fromkeys(
        ("", "-1S", "9" * 20 + "S", "x"),
        ("OK", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "INTERNAL"),
    ),
}
"""Values of grpc-timeout, with the allowed status codes."""


@CALLS.add(2)
def odd_headers(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a valid call with irrelevant or meaningless headers."""
    more = [
        ("grpc-timeout", rng.choice([*_TIMEOUTS])),
        ("grpc-encoding", rng.choice(["gzip", "identity", "deflate", "\xff", "zstd" * 99])),
        ("grpc-accept-encoding", "gzip," * rng.randint(1, 200)),
        ("user-agent", odd_string(rng).encode().decode("latin-1").strip() or "x"),
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
    allowed = _TIMEOUTS[dict(chosen).get("grpc-timeout", "1H")] + ("INTERNAL", "UNIMPLEMENTED")
    return Call([*fields, *chosen], [get("numbers")], codes=codes(*allowed))


@CALLS.add(4)
def framing(rng: random.Random, catalog: Catalog) -> Call:
    """Draws wrong lengths, flags, no message, or several messages."""
    path = rng.choice(METHODS)
    body = get("numbers")[5:]
    variant = rng.randrange(7)
    if variant == 0:
        data = frames.message(body, compressed=rng.choice((1, 2, 0xFF)))
        allowed = codes("INTERNAL", "INVALID_ARGUMENT", "OK", "NOT_FOUND")
        cancelled = _watched(path)  # C-core takes any flag for none but 1
        return Call(headers(path), [data], cancel_after_seconds=cancelled, codes=allowed)
    if variant == 1:
        length = rng.choice((65537, 1 << 20, 1 << 31, (1 << 32) - 1))
        data = frames.message(rng.randbytes(rng.randrange(2000)), length=length)
        return Call(headers(path), [data], rng.random() < 0.5, codes=codes("RESOURCE_EXHAUSTED"))
    if variant == 2:
        data = frames.message(body)[: rng.randrange(1, len(body) + 5)]
        return Call(headers(path), [data], codes=codes("INTERNAL", "INVALID_ARGUMENT"))
    if variant == 3:
        parts = rng.choice([[], [b""], [b"", b""]])
        return Call(headers(path), parts, codes=codes("UNIMPLEMENTED", "INVALID_ARGUMENT", "OK"))
    if variant == 4 and path in UNARY:
        data = frames.message(b"") * rng.randint(2, 50)  # the first one counts
        return Call(headers(path), [data], codes=codes("OK", "NOT_FOUND"))
    if variant == 5 and path in UNARY:
        # What follows the first message may be part of another, compressed or too large.
        data = get("numbers") + rng.randbytes(rng.randrange(1, 9000))
        allowed = codes(
            "OK", "NOT_FOUND", "INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"
        )
        return Call(headers(path), random_pieces(rng, data), codes=allowed)
    data = get("numbers")
    return Call(headers(f"{FEED}GetPipeline"), [bytes((byte,)) for byte in data], codes=codes("OK"))


@CALLS.add(5)
def garbage(rng: random.Random, catalog: Catalog) -> Call:
    """Draws random bytes as a message."""
    path = rng.choice(METHODS)
    body = rng.randbytes(rng.choice((1, 2, 3, 10, 100, 1000, 60000)))
    parts = random_pieces(rng, frames.message(body), 3)
    allowed = codes("INVALID_ARGUMENT", "INTERNAL", "OK", "NOT_FOUND")
    return Call(headers(path), parts, cancel_after_seconds=_watched(path), codes=allowed)


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
    data = frames.message(mutate(rng, good))
    allowed = codes("OK", "NOT_FOUND", "INVALID_ARGUMENT", "INTERNAL")
    return Call(headers(path), random_pieces(rng, data), codes=allowed)


@CALLS.add(3)
def deep_or_large(rng: random.Random, catalog: Catalog) -> Call:
    """Draws unknown fields, nested groups, overlong numbers, or strings of invalid UTF-8."""
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
    return Call(headers(path), parts, cancel_after_seconds=_watched(path), codes=allowed)


def _watched(path: str) -> float | None:
    """Returns the time after which a Watch is cancelled: a valid one never ends."""
    return 0.2 if path.endswith("Watch") else None


@CALLS.add(4)
def odd_pages(rng: random.Random, catalog: Catalog) -> Call:
    size = odd_number(rng, 32)
    request = service.ListPipelinesRequest(page_size=size, page_token=odd_string(rng))
    if len(data := request.SerializeToString()) > 65000:
        request.page_token = ""
        data = request.SerializeToString()

    def check(response: Response) -> str | None:
        if response.status != "0":
            return None
        page = service.ListPipelinesResponse.FromString(bytes(response.data[5:]))
        names = [pipeline.name for pipeline in page.pipelines]
        following = sorted(name for name in catalog.specs if name > request.page_token)
        expected = following[: size or 100]
        return None if names == expected else f"pipelines {names}, not {expected}"

    allowed = codes("INVALID_ARGUMENT" if size < 0 else "OK")
    return Call(headers(f"{FEED}ListPipelines"), [frames.message(data)], codes=allowed, check=check)


@CALLS.add(4)
def unknown_pipeline(rng: random.Random, catalog: Catalog) -> Call:
    return Call(headers(f"{FEED}GetPipeline"), [get(odd_string(rng))], codes=codes("NOT_FOUND"))


@CALLS.add(3)
def given_up(rng: random.Random, catalog: Catalog) -> Call:
    """Draws a valid call that is cancelled at any point."""
    parts = random_pieces(rng, get("numbers"))[: rng.randint(0, 6)]
    # The server may answer the truncated message before the cancellation arrives.
    allowed = ALLOWED_CODES | codes("INTERNAL")
    end = rng.random() < 0.3
    return Call(
        headers(f"{FEED}GetPipeline"), parts, codes=allowed, end=end, cancel_after_seconds=0.0
    )
