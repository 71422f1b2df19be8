"""The span of a batch: its phases, its end, its headers."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from tests.harness.spans import Spans, attribute

from infeed.shared.telemetry.batch_span import BatchSpan, address_attributes


def begin(spans: Spans, ended: list[BatchSpan]) -> BatchSpan:
    tracer = spans.provider.get_tracer("test")
    span = tracer.start_span("infeed.batch", attributes={"infeed.position": 0})
    return BatchSpan(tracer, span, ended.append)


def test_second_end_has_no_effect() -> None:
    spans, ended = Spans(), []  # type: ignore[var-annotated]
    span = begin(spans, ended)
    span.add("finish", 0.5)
    span.end("taken")
    span.end("dropped", "a problem")
    (batch,) = spans.batches
    assert attribute(batch, "outcome") == "taken"
    assert batch.status.is_unset
    assert [span.name for span in spans.all] == ["infeed.finish", "infeed.batch"]
    assert ended == [span]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.7:7470", {"server.address": "10.0.0.7", "server.port": 7470}),
        ("[::1]:7470", {"server.address": "::1", "server.port": 7470}),
        ("unix:/run/infeed.sock", {"server.address": "unix:/run/infeed.sock"}),
    ],
)
def test_address_has_host_and_port(address: str, expected: dict[str, object]) -> None:
    assert address_attributes("server", address) == expected
