"""Batch tracer: the spans of a feed's batches, from the request until the training takes them."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from importlib.metadata import version
from queue import SimpleQueue
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.trace import SpanContext, SpanKind

from infeed.shared.errors import InvalidRequestError
from infeed.shared.telemetry.batch_span import SPAN_NAME, BatchSpan, address_attributes

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_Taken = tuple[BatchSpan, int, float, SpanContext]
"""A batch that was taken: at which time in nanoseconds, after a wait in seconds, in which span."""


class BatchTracer:
    """Makes the spans of a feed's batches that the provider's sampler chooses. Thread-safe.

    A batch is requested long before a step takes it. Its span is the child of the span that was
    current when the request became possible: in the last call of `Feed.next`, before the first one
    in `connect`. It has a link to the span of the step that took it, if that is another one.

    The training's thread only puts taken batches into a queue: spans are made by `flush`, on
    another thread.
    """

    def __init__(self, provider: TracerProvider, attributes: Mapping[str, str | int]) -> None:
        """`attributes` are those of each batch. Raises `InvalidRequestError`."""
        if not hasattr(provider, "get_tracer"):
            raise InvalidRequestError(
                "tracer_provider must be an OpenTelemetry TracerProvider or None, not "
                f"{provider!r}; use opentelemetry.trace.get_tracer_provider()"
            )
        self._tracer = provider.get_tracer("infeed", version("infeed"))
        self._attributes = {f"infeed.{name}": value for name, value in attributes.items()}
        self._parent = context.get_current()
        self._open: set[BatchSpan] = set()
        self._taken: SimpleQueue[_Taken] = SimpleQueue()

    def begin(self, server: str, step: int, position: int) -> BatchSpan | None:
        """Returns the span of a batch that is about to be requested; None if it is not sampled."""
        span = self._tracer.start_span(
            SPAN_NAME,
            self._parent,
            SpanKind.CLIENT,
            {
                **self._attributes,
                "infeed.step": step,
                "infeed.position": position,
                **address_attributes("server", server),
            },
        )
        if not span.get_span_context().trace_flags.sampled:
            span.end()
            return None
        batch_span = BatchSpan(self._tracer, span, self._open.discard, server)
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

    def on_stream_ended(self, server: str) -> None:
        """Ends the spans of requests that the server has not answered."""
        for span in tuple(self._open):
            if span.server == server and not span.received:
                span.end("lost", "the stream ended before the batch was complete")

    def flush(self) -> None:
        """Ends the spans of the batches that were taken since the last call."""
        while True:
            try:
                span, at, wait_seconds, step = self._taken.get_nowait()
            except queue.Empty:
                return
            span.add_interval("wait", at - round(wait_seconds * 1e9), at)
            span.span.set_attribute("infeed.wait_seconds", wait_seconds)
            if step.is_valid and step != getattr(span.span, "parent", None):
                span.span.add_link(step)
            span.end("taken", at_ns=at)

    def close(self) -> None:
        """Ends all spans: no further batch is taken."""
        self.flush()
        for span in tuple(self._open):
            span.end("dropped")
