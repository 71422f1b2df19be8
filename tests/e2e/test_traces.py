"""Traces of real processes: a trainer here, `infeed serve` with a provider of the user's."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer
from tests.harness.spans import Spans, attribute

import infeed

PIPELINES = """
import sys
from infeed_server.pipeline.load import parse
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
trace.set_tracer_provider(provider)
PIPELINES = {
    "n": parse(
        {
            "source": {"arrays": "n.npz"},
            "transforms": [
                {"resize": {"field": "x", "size": [4, 4]}},
                {"normalize": {"field": "x", "scale": 255.0}},
            ],
            "batch": {"size": 4},
        }
    )
}
"""


@pytest.fixture
def server(nursery: Nursery, tmp_path: Path) -> Any:
    environment = {"OTEL_SERVICE_NAME": "feeders"}
    launch = partial(nursery.start, environment=environment)
    np.savez(tmp_path / "n.npz", x=np.zeros((20, 8, 8, 3), np.uint8))
    (tmp_path / "traced.py").write_text(PIPELINES)
    log = tmp_path / "log"
    with InfeedServer("traced:PIPELINES", log, http="127.0.0.1:0", launch=launch) as running:
        yield running


def exported(server: InfeedServer) -> list[dict[str, Any]]:
    """Returns the spans that the server has printed, after its end."""
    found = re.findall(r"^\{$.*?^\}$", server.log, re.MULTILINE | re.DOTALL)
    return [json.loads(item) for item in found]


def nanoseconds(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1e9


def test_both_ends_are_one_trace_and_nothing_is_traced_unsampled(server: InfeedServer) -> None:
    unsampled, spans = Spans(ALWAYS_OFF), Spans()
    for item in (unsampled, spans):
        with (
            item.provider.get_tracer("t").start_as_current_span("training"),
            infeed.connect(server.address, "n", epochs=1, tracer_provider=item.provider) as feed,
        ):
            assert len(list(feed)) == 5
    assert server.terminate() == 0
    assert unsampled.all == []
    batches = spans.batches
    assert [attribute(span, "position") for span in batches] == [0, 4, 8, 12, 16]
    printed = exported(server)
    (trace_id,) = {item["context"]["trace_id"] for item in printed}
    assert {f"0x{span.context.trace_id:032x}" for span in spans.all} == {trace_id}
    for span in batches:
        parent = f"0x{span.context.span_id:016x}"
        (remote,) = [item for item in printed if item["parent_id"] == parent]
        assert remote["kind"] == "SpanKind.SERVER"
        assert remote["resource"]["attributes"]["service.name"] == "feeders"
        for name in ("pipeline", "feed", "rank", "position"):
            assert remote["attributes"][f"infeed.{name}"] == attribute(span, name)
        own = remote["context"]["span_id"]
        phases = {item["name"]: item for item in printed if item["parent_id"] == own}
        order = [f"infeed.{stage}" for stage in ("read", "transform", "encode", "send")]
        assert sorted(phases) == sorted(order)
        ends = [nanoseconds(phases[name]["end_time"]) for name in order]
        assert ends == sorted(ends)
        assert span.start_time is not None
        assert span.end_time is not None
        # Printed with microseconds; one host has one clock.
        assert span.start_time - 1e3 <= nanoseconds(remote["start_time"])
        assert nanoseconds(remote["start_time"]) <= nanoseconds(phases["infeed.read"]["end_time"])
        assert nanoseconds(remote["start_time"]) <= span.end_time
