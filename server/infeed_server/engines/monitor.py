"""The monitor: counts and durations that engines and calls report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from infeed.shared.errors import SourceError

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan

Stage = Literal["read", "transform", "encode", "send"]
"""A stage of a batch on the server: reading the source, running the graph, encoding the fields
(with the finish transforms that a trainer leaves to the server), making and sending messages."""


Refusal = Literal["streams", "calls", "unauthenticated", "stopping"]
"""The reason for refusing a call. `streams`, `calls`: over a limit. `unauthenticated`: no valid
token. `stopping`: the server ends."""

Fault = Literal["changed", "damaged", "storage"]
"""Why data cannot be read: its files have changed or are damaged, until the server restarts; or
storage has a fault, which can pass."""


def fault_of(error: SourceError) -> Fault:
    """Returns the kind of fault: `changed` and `damaged` data stay so until the server restarts."""
    fault = error.metadata.get("fault")
    return "changed" if fault == "changed" else "damaged" if fault == "damaged" else "storage"


LabelledValues = Mapping[tuple[str, ...], float]
"""Label values → the value of a metric."""


class Monitor:
    """Receiver of events and values for metrics; this one ignores them. Every method is cheap and
    thread-safe."""

    def count(self, metric: str, *labels: str, amount: float = 1) -> None:
        """Adds to a counter, or to a gauge."""

    def measure(self, metric: str, value: float, *labels: str, trace_id: str = "") -> None:
        """Adds a value to a histogram, with the trace of its batch if there is one."""

    def expose(
        self, metric: str, text: str, read: Callable[[], LabelledValues], *labels: str
    ) -> None:
        """Exposes the result of a quick function at every scrape: a counter if the name ends with
        `_total`, else a gauge."""


def record_stage(
    monitor: Monitor, pipeline: str, stage: Stage, began_at: float, span: BatchSpan | None
) -> None:
    """Records a stage that ends now, also in the span of a traced batch. `began_at` is
    `time.perf_counter()` at its start."""
    seconds = time.perf_counter() - began_at
    trace_id = "" if span is None else span.trace_id
    monitor.measure("infeed_stage_seconds", seconds, pipeline, stage, trace_id=trace_id)
    if span is not None:
        span.add(stage, seconds)
