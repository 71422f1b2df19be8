"""Metrics of gRPC calls: names, attributes, status, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import infeed
from infeed.shared.errors import InvalidRequestError, PipelineNotFoundError
from infeed.testing import FakeTransport

PREFIX = "grpc.client.attempt."


def points(reader: InMemoryMetricReader) -> dict[tuple[str, ...], Any]:
    """Returns the data points by metric, method and status."""
    found = {}
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            attributes = dict(point.attributes or {})
            target = attributes.pop("grpc.target")
            assert str(target).startswith("dns:///127.0.0.1:")
            method = str(attributes["grpc.method"]).removeprefix("infeed.v1.FeedService/")
            key = (metric.name.removeprefix(PREFIX), method, str(attributes.get("grpc.status", "")))
            found[key] = point
    return found


def test_calls_have_the_metrics_of_the_proposal(serve: Callable[..., Any]) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    address = serve(FakeTransport({"x": np.zeros((8, 1000), np.uint8)}, batch_size=4)).address
    with infeed.connect(address, "fake", epochs=1, meter_provider=provider) as feed:
        assert len(list(feed)) == 2
    with pytest.raises(PipelineNotFoundError):
        infeed.connect(address, "another", meter_provider=provider)
    found = points(reader)
    assert found["started", "GetPipeline", ""].value == 2
    assert found["started", "StreamBatches", ""].value == 1
    assert found["duration", "GetPipeline", "OK"].count == 1
    assert found["duration", "GetPipeline", "NOT_FOUND"].count == 1
    (status,) = {key[2] for key in found if key[:2] == ("duration", "StreamBatches")}
    assert status in ("OK", "CANCELLED")  # the feed ends the stream, or the server does before
    received = found["rcvd_total_compressed_message_size", "StreamBatches", status]
    assert 8000 < received.sum < 9000
    assert found["sent_total_compressed_message_size", "GetPipeline", "OK"].sum == 5 + 6
    provider.shutdown()


def test_wrong_provider_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="meter_provider must be an OpenTelemetry"):
        infeed.connect("127.0.0.1:1", "fake", meter_provider="prometheus")  # type: ignore[arg-type]
