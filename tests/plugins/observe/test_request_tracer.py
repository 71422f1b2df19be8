"""Trace contexts of requests: the server makes spans for those that trainers sampled."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from tests.harness.spans import Spans, attribute

from infeed.v1 import stream_pb2
from infeed_observe.request_tracer import RequestTracer

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


def open_stream(spans: Spans) -> RequestTracer:
    opened = stream_pb2.StreamOpen(pipeline="photos", feed_id="f1", rank=3, world_size=8)
    return RequestTracer(spans.provider, opened, "10.0.0.7:5123")


def request(traceparent: str, tracestate: str = "") -> stream_pb2.BatchRequest:
    return stream_pb2.BatchRequest(
        request_id=7, start=64, traceparent=traceparent, tracestate=tracestate
    )


def test_span_is_the_child_of_the_trainers() -> None:
    spans = Spans()
    span = open_stream(spans).begin(request(SAMPLED, "vendor=1"))
    assert span is not None
    span.add("read", 0.0)
    span.end("sent")
    (batch,) = spans.batches
    assert batch.parent is not None
    assert f"{batch.parent.trace_id:032x}-{batch.parent.span_id:016x}" == f"{TRACE}-{PARENT}"
    assert batch.context.trace_state.get("vendor") == "1"
    names = ("pipeline", "feed", "rank", "world_size", "request_id", "position")
    assert [attribute(batch, name) for name in names] == ["photos", "f1", 3, 8, 7, 64]
    assert batch.attributes is not None
    assert batch.attributes["client.address"] == "10.0.0.7"
    assert list(spans.phases(batch)) == ["read"]


@pytest.mark.parametrize(
    "traceparent",
    [
        f"00-{TRACE}-{PARENT}-00",
        f"00-{'0' * 32}-{PARENT}-01",
        "\r\ntraceparent: 1",
        "é" * 55,
    ],
)
def test_context_that_is_malformed_or_not_sampled_is_ignored(traceparent: str) -> None:
    spans = Spans()
    stream = open_stream(spans)
    assert stream.begin(request(traceparent)) is None
    stream.close()
    assert spans.all == []


def test_the_servers_sampler_may_choose_fewer() -> None:
    spans = Spans(ALWAYS_OFF)
    assert open_stream(spans).begin(request(SAMPLED)) is None
    assert spans.all == []


def test_batches_that_are_not_sent_have_failed() -> None:
    spans = Spans()
    stream = open_stream(spans)
    sent, _ = stream.begin(request(SAMPLED)), stream.begin(request(SAMPLED))
    assert sent is not None
    sent.end("sent")
    stream.close()
    assert [attribute(span, "outcome") for span in spans.batches] == ["sent", "failed"]
    assert [span.status.is_unset for span in spans.batches] == [True, False]
