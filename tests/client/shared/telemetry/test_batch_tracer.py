"""Spans of a feed's batches: sampling, parents, links, and every way in which a batch ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from tests.harness.spans import Spans, attribute

import infeed
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Normalize
from infeed.shared.telemetry.batch_span import BatchTracer
from infeed.testing import FakeTransport
from infeed.transport import Call
from infeed.v1 import stream_pb2


class RecordingTransport(FakeTransport):
    """Keeps the trace contexts of the requests."""

    def __init__(self, **options: Any) -> None:
        super().__init__({"x": np.arange(40, dtype=np.uint8)}, batch_size=4, **options)
        self.contexts: list[str] = []

    def open_stream(
        self,
        server: str,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        on_draining: Callable[[], None],
    ) -> Call:
        def recorded() -> Iterator[stream_pb2.StreamBatchesRequest]:
            for request in requests:
                if request.HasField("batch"):
                    self.contexts.append(request.batch.traceparent)
                yield request

        return super().open_stream(server, recorded(), on_draining)


def read_all(transport: FakeTransport, provider: Any, **options: Any) -> int:
    """Returns the number of batches of an epoch."""
    with infeed.connect(
        "-", "fake", epochs=1, transport=transport, tracer_provider=provider, **options
    ) as feed:
        return len(list(feed))


def test_each_batch_has_a_span_from_request_to_delivery() -> None:
    spans = Spans()
    transport = RecordingTransport(finish_transforms=[Normalize("x", 255.0)])
    assert read_all(transport, spans.provider, shard=infeed.Shard(1, 2)) == 5
    assert [attribute(span, "position") for span in spans.batches] == [4, 12, 20, 28, 36]
    assert [attribute(span, "step") for span in spans.batches] == [0, 1, 2, 3, 4]
    for span, traceparent in zip(spans.batches, transport.contexts, strict=True):
        assert f"{span.context.span_id:016x}" in traceparent
        assert [attribute(span, name) for name in ("pipeline", "rank", "world_size")] == [
            "fake",
            1,
            2,
        ]
        assert attribute(span, "outcome") == "taken"
        phases = spans.phases(span)
        assert set(phases) == {"request", "receive", "finish", "wait"}
        times = [phases[name] for name in ("request", "receive", "finish")]
        ends = [span.start_time, *(phase.start_time for phase in times)]
        assert ends == sorted(ends)  # type: ignore[type-var]
        assert all(
            span.start_time <= phase.start_time <= phase.end_time <= span.end_time  # type: ignore[operator]
            for phase in phases.values()
        )


def test_nothing_is_made_or_sent_when_not_sampled() -> None:
    spans, transport = Spans(ALWAYS_OFF), RecordingTransport()
    assert read_all(transport, spans.provider) == 10
    assert spans.all == []
    assert set(transport.contexts) == {""}


def test_parent_is_the_span_of_connect_then_of_the_last_next() -> None:
    spans, steps = Spans(ParentBased(root=ALWAYS_OFF)), []
    tracer = Spans().provider.get_tracer("training")  # of a sampled job: no other batch would be
    options: Any = {"transport": RecordingTransport(), "tracer_provider": spans.provider}
    with tracer.start_as_current_span("job") as root:
        feed = infeed.connect("-", "fake", epochs=1, prefetch_bytes=1, **options)
    with feed:
        for _ in range(10):
            with tracer.start_as_current_span("step") as step:
                next(feed)
                steps.append(step.get_span_context())
    parents = [span.parent for span in spans.batches]
    assert parents[0] == root.get_span_context()
    assert all(parent in steps for parent in parents[-2:])
    links = [span.links[0].context if span.links else None for span in spans.batches]
    assert links[0] == steps[0]
    assert all(link in (step, None) for link, step in zip(links, steps, strict=True))


def test_batches_that_are_not_taken_are_dropped() -> None:
    spans = Spans()
    feed = infeed.connect(
        "-", "fake", transport=RecordingTransport(), tracer_provider=spans.provider
    )
    next(feed)
    feed.close()
    outcomes = [attribute(span, "outcome") for span in spans.batches]
    assert outcomes[0] == "taken"
    assert set(outcomes[1:]) <= {"dropped", "lost"}


def test_requests_of_a_lost_stream_are_lost() -> None:
    spans, failed = Spans(), []

    def fail_once(start: int) -> None:
        if start == 8 and not failed:
            failed.append(start)
            raise infeed.ServerUnavailableError("gone")

    assert read_all(RecordingTransport(before_batch=fail_once), spans.provider) == 10
    lost = [span for span in spans.batches if attribute(span, "outcome") == "lost"]
    assert 8 in [attribute(span, "position") for span in lost]
    assert not any(span.status.is_ok for span in lost)
    taken = [span for span in spans.batches if attribute(span, "outcome") == "taken"]
    assert [attribute(span, "step") for span in taken] == list(range(10))


def test_wrong_provider_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="tracer_provider must be an OpenTelemetry"):
        read_all(RecordingTransport(), "otlp")


def test_lost_connection_ends_no_span_of_another_one_to_the_server() -> None:
    spans = Spans()
    tracer = BatchTracer(spans.provider, {})
    tracer.begin("a:1", "a:1", 0, 0)
    tracer.begin("a:1", "a:1#2", 1, 4)
    tracer.on_stream_ended("a:1#2")
    assert [attribute(span, "step") for span in spans.batches] == [1]


def test_a_stream_ends_while_another_begins_spans() -> None:
    """On free-threaded Python, one may begin at any point of it."""
    tracer = BatchTracer(Spans().provider, {})
    began = threading.Thread(target=lambda: [tracer.begin("a", "a", k, k) for k in range(2000)])
    began.start()
    while began.is_alive():
        tracer.on_stream_ended("b")
    began.join()
    tracer.close()
