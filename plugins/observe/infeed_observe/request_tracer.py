"""Request tracer: the server's spans for the batches that a trainer samples.

The trainer decides which batches are traced: a request without a sampled trace context has no
span. The sampler of the server's provider may drop more.
"""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, TracerProvider, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from infeed.shared.telemetry.batch_span import SPAN_NAME, BatchSpan, address_attributes
from infeed.v1 import stream_pb2
from infeed_server.serving.instrument import StreamTracer
from infeed_server.version import VERSION

_PROPAGATOR = TraceContextTextMapPropagator()


class RequestTracer(StreamTracer):
    """Traces the requests of one stream. Thread-safe."""

    def __init__(self, provider: TracerProvider, opened: stream_pb2.StreamOpen, peer: str) -> None:
        self._tracer = provider.get_tracer("infeed_server", VERSION)
        self._attributes = {
            "infeed.pipeline": opened.pipeline,
            "infeed.feed": opened.feed_id,
            "infeed.rank": opened.rank,
            "infeed.world_size": opened.world_size or 1,
            **address_attributes("client", peer),
        }
        self._open: set[BatchSpan] = set()

    @override
    def begin(self, request: stream_pb2.BatchRequest, /) -> BatchSpan | None:
        """Returns the span of a request, a child of the trainer's span. None if the trace context
        is malformed or not sampled, or the server's sampler drops it."""
        carrier = {"traceparent": request.traceparent, "tracestate": request.tracestate}
        parent = _PROPAGATOR.extract(carrier, Context())
        if not get_current_span(parent).get_span_context().trace_flags.sampled:
            return None
        own = {"infeed.request_id": request.request_id, "infeed.position": request.start}
        attributes = {**self._attributes, **own}
        span = self._tracer.start_span(SPAN_NAME, parent, SpanKind.SERVER, attributes)
        if not span.get_span_context().trace_flags.sampled:
            span.end()
            return None
        batch_span = BatchSpan(self._tracer, span, self._open.discard)
        self._open.add(batch_span)
        return batch_span

    @override
    def close(self) -> None:
        for span in tuple(self._open):
            span.end("failed", "the stream ended before the batch was sent")
