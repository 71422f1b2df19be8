"""The monitor: events that engines and streams report, to be counted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from infeed.shared.errors import SourceError
from infeed.shared.spec import OnError

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan

Stage = Literal["read", "transform", "encode", "send"]
"""A stage of a batch on the server: reading the source, running the graph, encoding the fields
(with the finish transforms that a trainer leaves to the server), making and sending messages."""


Refusal = Literal["streams", "calls", "unauthenticated", "stopping"]
"""The reason for which a call is refused. `streams`, `calls`: over a limit. `unauthenticated`: no
valid token. `stopping`: the server ends."""

Fault = Literal["changed", "damaged", "storage"]
"""Why data cannot be read: its files are other ones, or damaged, until the server is restarted; or
storage has a fault, which can pass."""


def fault_of(error: SourceError) -> Fault:
    """Returns what is wrong: `changed` and `damaged` data stay so until the server restarts."""
    fault = error.metadata.get("fault")
    return "changed" if fault == "changed" else "damaged" if fault == "damaged" else "storage"


@dataclass(frozen=True)
class EndedCall:
    """A gRPC call that has ended."""

    method: str
    """The method, or `unknown`."""
    status: str
    """The name of the status."""
    seconds: float
    sent_bytes: int
    """Messages that were sent, with their prefixes."""
    received_bytes: int


class Monitor:
    """Events of engines and streams; ignores them. Every method is cheap and thread-safe."""

    def on_stage(self, pipeline: str, stage: Stage, seconds: float, trace_id: str = "") -> None:
        """Records the duration of one stage of one batch, and its trace if there is one."""

    def on_bad_sample(self, pipeline: str, action: OnError) -> None:
        """Records a sample that could not be read or transformed, and the action taken."""

    def on_source_error(self, pipeline: str, error: SourceError) -> None:
        """Records a batch that was refused because its data cannot be read."""

    def on_quarantine_failed(self, pipeline: str) -> None:
        """Records a bad sample that the quarantine log could not take."""

    def on_stream_opened(self, pipeline: str) -> None:
        """Records a stream that opens."""

    def on_stream_closed(self, pipeline: str) -> None:
        """Records a stream that has ended."""

    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        """Records a sent batch: its samples and its payload bytes."""

    def on_refused(self, reason: Refusal) -> None:
        """Records a call that was refused."""

    def on_call_started(self, method: str) -> None:
        """Records a call that begins: its method, or `unknown`."""

    def on_call(self, call: EndedCall) -> None:
        """Records a call that has ended."""


def record_stage(
    monitor: Monitor, pipeline: str, stage: Stage, began_at: float, span: BatchSpan | None
) -> None:
    """Records a stage that ends now, also in the span of a batch that is traced. `began_at` is of
    `time.perf_counter`."""
    seconds = time.perf_counter() - began_at
    if span is None:
        monitor.on_stage(pipeline, stage, seconds)
    else:
        monitor.on_stage(pipeline, stage, seconds, span.trace_id)
        span.add(stage, seconds)
