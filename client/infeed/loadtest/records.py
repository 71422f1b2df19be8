"""Records: what a simulated trainer sends to the load test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.spec import Array


@dataclass(frozen=True)
class Steps:
    """Steps of a trainer, in order. Times are monotonic seconds, which processes share."""

    requested_at: Array
    """float64: when each batch was requested."""
    wait_seconds: Array
    """float64: the wait for it."""
    busy_seconds: Array
    """float64: from the batch to the next request: the compute."""
    ready: Array
    """bool: whether the batch was there when it was requested."""
    starts: Array
    """int64: the first position of each batch."""
    sample_ids: Array
    """int64 [steps, slots]."""
    epochs: Array
    """int64: the epoch of the first slot of each batch."""

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Point:
    """The steps since the last point, and the state after them. A resume starts from it."""

    steps: Steps
    at: float
    """Monotonic seconds."""
    state: Mapping[str, Any]
    """The cursor after these steps."""
    first_batch_seconds: float
    """Wait for the first batch since the trainer connected, with the time to connect."""
    bytes: int
    """Bytes on the wire since it connected, of the batches that it took."""
    reconnects: int
    hedges: int
    cpu_seconds: float
    """Processor time of the trainer's process so far."""
    max_memory_bytes: int
    """Its largest resident memory so far."""
    report: TrainerReport
    servers: Mapping[str, ServerReport]
    """The last report of each server, by address."""
    lost: tuple[str, ...] = ()
    """Addresses of the servers that no longer serve it."""
    messages: tuple[tuple[float, str], ...] = ()
    """The warnings that the feed logged since the last point, with their monotonic times."""
    unanswered_at: float | None = None
    """When the trainer requested a batch that it did not get before it was stopped, monotonic
    seconds; None: it had all that it requested."""


@dataclass(frozen=True)
class Failure:
    """The error that ended a trainer."""

    error: str


@dataclass(frozen=True)
class Finished:
    """The end of a trainer that has made its steps, or was asked to stop."""


Record = Point | Failure | Finished
