"""The instrument of a server: calls and engines report to it, independently of what it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infeed.shared.report import ServerReport, TrainerReport
from infeed.v1 import stream_pb2
from infeed_server.engines.monitor import Monitor

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan


@dataclass(eq=False)
class ConnectedTrainer:
    """The stream of one rank."""

    pipeline: str
    rank: int
    feed_id: str
    peer: str
    seed: int = 0
    batch_size: int = 1
    world_size: int = 1
    job_name: str = ""
    held: Callable[[], Mapping[str, float]] = dict
    """Returns the seconds that requests have waited so far, by what its stream held."""
    position: int | None = None
    """The end of the last batch sent; None before the first request."""


class StreamTracer:
    """Traces the requests of one stream; this base class traces none."""

    def begin(self, _request: stream_pb2.BatchRequest, /) -> BatchSpan | None:
        """Returns the span of a request if it is traced."""
        return None

    def close(self) -> None:
        """Ends the spans of the batches that were not sent."""


class Instrument:
    """Observes a server from its opening to `stop`, and shows it; this base class shows nothing.
    All methods except `start` and `stop` are called on any thread."""

    monitor = Monitor()
    """What engines and calls report to."""
    address: str | None = None
    """The `host:port` at which it is shown; None: nowhere."""
    url: str = ""
    """Its URL for trainers; empty if they may not read it."""

    def start(self) -> None:
        """Starts once all pipelines are open."""

    def stop(self) -> None:
        """Frees its address."""

    def connect(self, trainer: ConnectedTrainer) -> None:
        """Adds a stream that is open."""

    def trace(self, _opening: stream_pb2.StreamOpen, _peer: str, /) -> StreamTracer:
        """Returns the tracer of a stream."""
        return StreamTracer()

    def disconnect(self, trainer: ConnectedTrainer) -> None:
        """Removes a stream that has ended."""

    def on_report(self, trainer: ConnectedTrainer, report: TrainerReport) -> ServerReport | None:
        """Accepts a trainer's report, and returns the server's answer, if any."""
