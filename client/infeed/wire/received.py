"""Values of one stream: its contract, its pending requests, and what the server sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from infeed.batch import Batch
from infeed.shared.spec import Spec
from infeed.v1 import stream_pb2
from infeed.wire.batch import payload_bytes

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan


@dataclass(frozen=True)
class StreamContract:
    """The properties that every stream of a feed must have."""

    fingerprint: str
    spec: Spec
    batch_size: int
    stride: int
    seed: int
    opening: stream_pb2.StreamOpen
    """The request as the server must have read it, without the feed's id."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """The parts of a mixture, with the number of samples in each."""

    @cached_property
    def payload_bytes(self) -> int | None:
        """Payload bytes of one batch; None for a spec with byte strings, whose length varies."""
        return payload_bytes(self.spec, self.batch_size)


@dataclass(frozen=True)
class PendingRequest:
    """A request without a response yet; its id is the step of the feed."""

    message: stream_pb2.BatchRequest
    span: BatchSpan | None = None
    """The span of the batch, if it is traced."""


@dataclass(frozen=True)
class EndOfData:
    """End of a data set of unknown length: `step` lies beyond its `position_count` positions."""

    step: int
    position_count: int


class Draining:
    """The server shuts down: it answers the requests that it has, and takes no more."""


@dataclass(frozen=True)
class ReceivedBatch:
    """The batch of one step, in the wire spec, and its payload bytes."""

    step: int
    batch: Batch
    payload_bytes: int
    position_count: int | None = None
    """Positions of a data set of unknown length that ends within the step; else None."""
    receive_seconds: float = 0.0
    """Time from the header to the last byte."""
    span: BatchSpan | None = None
    """The span of the batch, if it is traced."""
