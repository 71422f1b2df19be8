"""The span of a batch, on either side, and the spans of a feed. Phases are recorded as intervals
and become child spans only when the batch ends, to cost the data threads little."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

from opentelemetry import context, trace
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
)
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

SPAN_NAME = "infeed.batch"
"""The name of the client's and of the server's span; a phase has `infeed.` and its own."""

Phase = Literal["request", "receive", "finish", "wait", "read", "transform", "encode", "send"]

Outcome = Literal["taken", "duplicate", "lost", "dropped", "sent", "failed"]
"""Outcome of a batch: client spans have the first four, server spans the last three."""


def address_attributes(kind: Literal["server", "client"], address: str) -> dict[str, str | int]:
    """Returns OpenTelemetry's attributes of a peer's address, `host:port` or `unix:/path`."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return {f"{kind}.address": address}
    return {f"{kind}.address": host.strip("[]"), f"{kind}.port": int(port)}


class BatchSpan:
    """A span that is sampled and not ended yet. Thread-safe."""

    def __init__(
        self, tracer: Tracer, span: Span, on_end: Callable[[BatchSpan], object], stream: str = ""
    ) -> None:
        self.stream = stream
        self.received = False
        self.began_ns = time.time_ns()
        self.span = span
        self.trace_id = format_trace_id(span.get_span_context().trace_id)
        self._tracer = tracer
        self._on_end = on_end
        self._phases: list[tuple[Phase, int, int]] = []
        self._open = threading.Lock()

    def headers(self) -> tuple[str, str]:
        """Returns W3C Trace Context's `traceparent` and `tracestate`, for the peer."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(self.span))
        return carrier["traceparent"], carrier.get("tracestate", "")

    def add(self, phase: Phase, seconds: float) -> None:
        """Records a phase that ends now."""
        end = time.time_ns()
        self.add_interval(phase, end - round(seconds * 1e9), end)

    def add_interval(self, phase: Phase, begin_ns: int, end_ns: int) -> None:
        """Records a phase, without what lies before the beginning of the batch."""
        begin = max(self.began_ns, begin_ns)
        self._phases.append((phase, begin, max(begin, end_ns)))

    def on_received(self, receive_seconds: float, payload_bytes: int) -> None:
        """Records the phases until the last byte has arrived, which is now."""
        self.received = True
        self.span.set_attribute("infeed.payload_bytes", payload_bytes)
        now = time.time_ns()
        header_at = now - round(receive_seconds * 1e9)
        self.add_interval("request", self.began_ns, header_at)
        self.add_interval("receive", header_at, now)

    def end(self, outcome: Outcome, problem: str = "", at_ns: int | None = None) -> None:
        """Ends the span and makes the spans of its phases; does nothing when called again."""
        if not self._open.acquire(blocking=False):
            return
        parent = set_span_in_context(self.span)
        for phase, begin, end in self._phases:
            child = self._tracer.start_span(f"infeed.{phase}", parent, start_time=begin)
            child.end(end)
        self.span.set_attribute("infeed.outcome", outcome)
        if problem:
            self.span.set_status(Status(StatusCode.ERROR, problem))
        self.span.end(at_ns)
        self._on_end(self)


_Taken = tuple[BatchSpan, int, float, SpanContext]
"""A batch taken: its time in nanoseconds, the wait in seconds, and the span."""


class BatchTracer:
    """Makes the spans of a feed's batches that the provider's sampler chooses. Thread-safe.

    A batch's span is the child of the span that was current in the last call of `Feed.next`, with a
    link to the span of the step that took it. `flush` ends spans, on another thread.
    """

    def __init__(self, provider: TracerProvider, attributes: Mapping[str, str | int]) -> None:
        """`attributes` are set on each span. Raises `InvalidRequestError`."""
        if not hasattr(provider, "get_tracer"):
            raise InvalidRequestError(
                f"tracer_provider must be an OpenTelemetry TracerProvider or None, not {provider!r}"
            )
        self._tracer = provider.get_tracer("infeed", version("infeed"))
        self._attributes = {f"infeed.{name}": value for name, value in attributes.items()}
        self._parent = context.get_current()
        self._open: set[BatchSpan] = set()
        """Copied to a list: this is atomic on free-threaded Python, too."""
        self._taken: SimpleQueue[_Taken] = SimpleQueue()

    def begin(self, server: str, stream: str, step: int, position: int) -> BatchSpan | None:
        """Returns the span of a batch that is about to be requested; None if it is not sampled."""
        own = {"infeed.step": step, "infeed.position": position}
        attributes = {**self._attributes, **own, **address_attributes("server", server)}
        span = self._tracer.start_span(SPAN_NAME, self._parent, SpanKind.CLIENT, attributes)
        if not span.get_span_context().trace_flags.sampled:
            span.end()
            return None
        batch_span = BatchSpan(self._tracer, span, self._open.discard, stream)
        self._open.add(batch_span)
        return batch_span

    def on_taken(self, span: BatchSpan | None, wait_seconds: float) -> None:
        """Records that the training has taken a batch. Called by its thread, without a lock."""
        current = context.get_current()
        step = trace.get_current_span(current).get_span_context()
        if step.is_valid:
            self._parent = current
        if span is not None:
            self._taken.put((span, time.time_ns(), wait_seconds, step))

    def on_stream_ended(self, stream: str) -> None:
        """Ends the spans of requests that were not answered on the stream."""
        for span in list(self._open):
            if span.stream == stream and not span.received:
                span.end("lost", "the stream ended before the batch was complete")

    def flush(self) -> None:
        """Ends the spans of the batches that were taken since the last call."""
        while True:
            try:
                span, at, wait_seconds, step = self._taken.get_nowait()
            except queue.Empty:  # not `while queue`: two threads may flush
                return
            span.add_interval("wait", at - round(wait_seconds * 1e9), at)
            span.span.set_attribute("infeed.wait_seconds", wait_seconds)
            if step.is_valid and step != getattr(span.span, "parent", None):
                span.span.add_link(step)
            span.end("taken", at_ns=at)

    def close(self) -> None:
        """Ends all spans: no further batch is taken."""
        self.flush()
        for span in list(self._open):
            span.end("dropped")
