"""Metrics of gRPC calls, under the names of gRPC's proposal A66, `grpc.client.attempt.*`.

infeed implements gRPC itself, so no library emits them. Each call is one attempt.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

_SECONDS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400)
"""Upper bounds of the buckets, from a unary call to the stream of a training."""

_BYTES = tuple(float(1 << power) for power in range(10, 48, 4))
"""Upper bounds of the buckets, from a request of 1 KiB to the batches of a training, 64 TiB."""

CALL_METRICS = {
    "grpc.client.attempt.started": ("{attempt}", "Calls that have begun, by method and target"),
    "grpc.client.attempt.duration": ("s", "Duration of ended calls"),
    "grpc.client.attempt.sent_total_compressed_message_size": (
        "By",
        "Bytes of the messages that were sent in an ended call",
    ),
    "grpc.client.attempt.rcvd_total_compressed_message_size": (
        "By",
        "Bytes of the messages that were received in an ended call",
    ),
}
"""Unit and description by name."""


class CallMetrics:
    """Measures the calls of a transport. Thread-safe."""

    def __init__(self, provider: MeterProvider) -> None:
        """Raises `InvalidRequestError`."""
        if not hasattr(provider, "get_meter"):
            raise InvalidRequestError(
                f"meter_provider must be an OpenTelemetry MeterProvider or None, not {provider!r}; "
                "use opentelemetry.metrics.get_meter_provider()"
            )
        meter = provider.get_meter("infeed", version("infeed"))
        started, *histograms = CALL_METRICS
        self._started = meter.create_counter(started, *CALL_METRICS[started])
        self._duration, self._sent, self._received = (
            meter.create_histogram(
                name,
                *CALL_METRICS[name],
                explicit_bucket_boundaries_advisory=_SECONDS if "duration" in name else _BYTES,
            )
            for name in histograms
        )

    def on_started(self, method: str, address: str) -> None:
        """Counts a call that begins; `method` begins with a slash."""
        self._started.add(1, _attributes(method, address))

    def on_ended(
        self,
        method: str,
        address: str,
        status: str,
        seconds: float,
        sent_bytes: int,
        received_bytes: int,
    ) -> None:
        """Records a call that has ended, with the name of its status."""
        attributes = {**_attributes(method, address), "grpc.status": status}
        self._duration.record(seconds, attributes)
        self._sent.record(sent_bytes, attributes)
        self._received.record(received_bytes, attributes)


def _attributes(method: str, address: str) -> dict[str, str]:
    target = address if address.startswith("unix:") else f"dns:///{address}"
    return {"grpc.method": method.removeprefix("/"), "grpc.target": target}
