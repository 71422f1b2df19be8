"""The span of a batch, on either side, and its phases as child spans.

Phases are recorded as intervals, and become spans when the batch ends: this costs little in the
threads that move data. Child spans rather than events, for a phase has a duration, and
OpenTelemetry is replacing span events by logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from opentelemetry.trace import Span, Status, StatusCode, Tracer, format_trace_id
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SPAN_NAME = "infeed.batch"
"""The name of the client's and of the server's span; a phase has `infeed.` and its own."""

Phase = Literal["request", "receive", "finish", "wait", "read", "transform", "encode", "send"]

Outcome = Literal["taken", "duplicate", "lost", "dropped", "sent", "failed"]
"""What became of a batch: of a client's span, the first four; of a server's, the last three."""


def address_attributes(kind: Literal["server", "client"], address: str) -> dict[str, str | int]:
    """Returns OpenTelemetry's attributes of a peer's address, `host:port` or `unix:/path`."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return {f"{kind}.address": address}
    return {f"{kind}.address": host.strip("[]"), f"{kind}.port": int(port)}


class BatchSpan:
    """A span that is sampled and not ended yet. Thread-safe."""

    def __init__(
        self, tracer: Tracer, span: Span, on_end: Callable[[BatchSpan], object], server: str = ""
    ) -> None:
        """`on_end` is called once, when the span ends."""
        self.server = server
        """The server that was asked for the batch, on the client's side."""
        self.received = False
        """Whether the client has received the batch."""
        self.began_ns = time.time_ns()
        self.span = span
        self.trace_id = format_trace_id(span.get_span_context().trace_id)
        self._tracer = tracer
        self._on_end = on_end
        self._phases: list[tuple[Phase, int, int]] = []
        self._open = [True]

    def headers(self) -> tuple[str, str]:
        """Returns `traceparent` and `tracestate` of W3C Trace Context, for the peer."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(self.span))
        return carrier["traceparent"], carrier.get("tracestate", "")

    def add(self, phase: Phase, seconds: float) -> None:
        """Records a phase that ends now."""
        end = time.time_ns()
        self.add_interval(phase, end - round(seconds * 1e9), end)

    def add_interval(self, phase: Phase, begin_ns: int, end_ns: int) -> None:
        """Records a phase; what lies before the begin of the batch is left out."""
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
        """Ends the span and makes those of its phases; does nothing when called again.

        With a `problem` it has the status of an error.
        """
        try:
            self._open.pop()
        except IndexError:
            return
        context = set_span_in_context(self.span)
        for phase, begin, end in self._phases:
            child = self._tracer.start_span(f"infeed.{phase}", context, start_time=begin)
            child.end(end)
        self.span.set_attribute("infeed.outcome", outcome)
        if problem:
            self.span.set_status(Status(StatusCode.ERROR, problem))
        self.span.end(at_ns)
        self._on_end(self)
