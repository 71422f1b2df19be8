"""gRPC calls of the server's fuzzing: their requests and their allowed outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.stress.fuzz.response_order import Check

from infeed.rpc.status import CODES
from infeed.shared.spec import PipelineSpec
from infeed.v1 import stream_pb2

FEED = "/infeed.v1.FeedService/"
HEALTH = "/grpc.health.v1.Health/"

ALLOWED_CODES = frozenset(CODES) - {"UNKNOWN", "INTERNAL"}
"""Allowed status codes by default; the other two mean an unexpected error in the server."""


@dataclass
class Call:
    """Request of one call, and its allowed outcomes."""

    method: str
    messages: list[bytes] = field(default_factory=list)
    end: bool = True
    """Whether the request ends after the messages."""
    cancel_after_seconds: float | None = None
    """Time after which the call is cancelled; None: the server must end it."""
    codes: frozenset[str] = ALLOWED_CODES
    """Allowed status codes, by name."""
    check: Check | None = None


@dataclass(frozen=True)
class Catalog:
    """Pipelines of the server."""

    specs: dict[str, PipelineSpec]

    def pipeline(self, rng: random.Random) -> PipelineSpec:
        """Returns a pipeline, mostly an inexpensive one."""
        return self.specs[rng.choices(["numbers", "files", "rows", "photos"], [6, 2, 2, 1])[0]]


Draw: TypeAlias = "Callable[[random.Random, Catalog], Call]"

CALLS: dict[Draw, float] = {}
"""Functions that draw calls, with their relative frequencies."""


def kind(weight: float) -> Callable[[Draw], Draw]:
    """Registers a function that draws calls."""

    def register(draw: Draw) -> Draw:
        CALLS[draw] = weight
        return draw

    return register


def event(**values: Any) -> bytes:
    """Returns a StreamBatchesRequest."""
    return stream_pb2.StreamBatchesRequest(**values).SerializeToString()


def open_request(spec: PipelineSpec, **changes: Any) -> bytes:
    return event(open=stream_pb2.StreamOpen(**{"pipeline": spec.name, "epochs": 2, **changes}))


def batch_request(request_id: int, start: int, count: int) -> bytes:
    return event(batch=stream_pb2.BatchRequest(request_id=request_id, start=start, count=count))


def step_requests(spec: PipelineSpec, numbers: Sequence[int]) -> list[bytes]:
    """Returns the requests of one rank's steps."""
    size = spec.stride(spec.batch_size)
    return [batch_request(number, number * size, size) for number in numbers]
