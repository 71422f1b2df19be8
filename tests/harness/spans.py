"""Finished spans of an OpenTelemetry provider, in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """A provider that samples as `sampler` says, and the spans that have ended."""

    def __init__(self, sampler: Any = None) -> None:
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def batches(self) -> list[ReadableSpan]:
        """The spans of batches, in the order of their positions."""
        spans = [span for span in self.all if span.name == "infeed.batch"]
        return sorted(spans, key=lambda span: attribute(span, "position"))

    def phases(self, span: ReadableSpan) -> dict[str, ReadableSpan]:
        """Returns the children of a batch's span, by phase."""
        found = [item for item in self.all if item.parent and item.parent == span.context]
        return {item.name.removeprefix("infeed."): item for item in found}


def attribute(span: ReadableSpan, name: str) -> Any:
    """Returns the attribute `infeed.NAME`."""
    assert span.attributes is not None
    return span.attributes[f"infeed.{name}"]
