"""Calls of gRPC: what is said in each, and which ends are proper."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.stress.fuzz import frames
from tests.stress.fuzz.case import Kinds
from tests.stress.fuzz.peer import Answer

from infeed.spec import PipelineSpec
from infeed.status import CODES
from infeed.v1 import stream_pb2

FEED = "/infeed.v1.FeedService/"
HEALTH = "/grpc.health.v1.Health/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

PROPER = frozenset(CODES) - {"UNKNOWN", "INTERNAL"}
"""The codes that are an answer; the two others say that the server does not know what happened."""

BAD_MESSAGE = {"a message that ends early", "that is not what the method takes"}
"""Beginnings and ends of texts of INTERNAL, which is gRPC's own code for a message that cannot be
taken apart, in its framing or by the parser of a service of gRPC's."""

BUSY = "jobs read at different places already"
"""Of UNAVAILABLE: a sequential data set has as many readers as it may have, and a peer is to try
again. Which calls meet that depends on those beside them."""

FULL = "health calls open already"
"""Of RESOURCE_EXHAUSTED: one host can watch the health only so often at a time."""

Check: TypeAlias = "Callable[[Answer], str | None]"


@dataclass
class Call:
    """One request, as it is sent."""

    headers: frames.Fields
    parts: list[bytes] = field(default_factory=list)
    """Data, a frame each."""
    end: bool = True
    """Whether the request is ended behind the parts."""
    leave_seconds: float | None = None
    """When the call is given up; None: the server must end it."""
    codes: frozenset[str] = PROPER
    """Proper ends, by name; `HTTP 405` where HTTP answers."""
    check: Check | None = None
    """Says what is wrong with the answer."""


@dataclass(frozen=True)
class Catalog:
    """What there is to ask for."""

    specs: dict[str, PipelineSpec]

    def pipeline(self, rng: random.Random) -> PipelineSpec:
        """Mostly one that costs little."""
        return self.specs[rng.choices(["numbers", "files", "rows", "photos"], [6, 2, 2, 1])[0]]


Draw: TypeAlias = "Callable[[random.Random, Catalog], Call]"

CALLS: Kinds[Draw] = Kinds()


def headers(path: str, **changes: str | None) -> frames.Fields:
    """Of a good request; names with `_` for `-`, `p_` for `:`; None leaves one out."""
    fields: dict[str, str | None] = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "fuzz",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    for name, value in changes.items():
        fields[name.replace("p_", ":").replace("_", "-")] = value
    return [(name, value) for name, value in fields.items() if value is not None]


def codes(*names: str) -> frozenset[str]:
    return frozenset(names)


def event(**values: Any) -> bytes:
    """A framed StreamBatchesRequest."""
    return frames.message(stream_pb2.StreamBatchesRequest(**values).SerializeToString())


def opening(spec: PipelineSpec, **changes: Any) -> bytes:
    return event(open=stream_pb2.StreamOpen(**{"pipeline": spec.name, "epochs": 2, **changes}))


def asking(request_id: int, start: int, count: int) -> bytes:
    return event(batch=stream_pb2.BatchRequest(request_id=request_id, start=start, count=count))


def asked_in_order(spec: PipelineSpec, numbers: Sequence[int]) -> list[bytes]:
    """The requests of one rank's steps."""
    size = spec.stride(spec.batch_size)
    return [asking(number, number * size, size) for number in numbers]


def strings(rng: random.Random) -> str:
    """Names that are odd, but text."""
    return rng.choice(
        [
            "",
            " ",
            "numbers ",
            "NUMBERS",
            "numbers\0",
            "../../etc/passwd",
            "{0.__class__}%s%n",
            "\u202e\ufeff\U0001f600",
            "a" * rng.choice((100, 5000, 60000)),
            "".join(chr(rng.randrange(0x20, 0xD7FF)) for _ in range(rng.randint(1, 40))),
            "".join(chr(rng.randrange(0, 0x20)) for _ in range(rng.randint(1, 9))),
        ]
    )


def numbers(rng: random.Random, bits: int = 64) -> int:
    """Of that many bits with a sign; mostly those where something begins or ends."""
    most = (1 << (bits - 1)) - 1
    near = [0, 1, -1, 2, 100, 1 << 16, 1 << 17, (1 << 31) - 1, -(1 << 31), most, -most - 1]
    near += [most // 2, most // 2 + 1, most // 2 + 2]
    value = rng.choice([*near, *near, rng.randint(-most, most)]) + rng.choice((0, 0, 0, 1, -1))
    return max(-most - 1, min(most, value))
