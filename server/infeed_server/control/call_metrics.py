"""Metrics of gRPC calls: infeed's own, and those of gRPC's proposal A66 in Prometheus' spelling.

grpcio emits none by itself.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from infeed_server.engines.monitor import EndedCall

_SECONDS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400)
"""From a health check to the stream of a training."""

_BYTES = tuple(1 << power for power in range(10, 48, 4))
"""From a request of 1 KiB to the batches of a training, 64 TiB."""


class CallMetrics:
    """Counts gRPC calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "infeed_calls_total",
            "Ended calls, by method and gRPC status.",
            ("method", "status"),
            registry=registry,
        )
        self._started = Counter(
            "grpc_server_call_started_total",
            "Calls that have begun.",
            ("grpc_method",),
            registry=registry,
        )

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            labels = ("grpc_method", "grpc_status")
            return Histogram(
                f"grpc_server_call_{name}", text, labels, buckets=buckets, registry=registry
            )

        self._seconds = histogram("duration_seconds", "Duration of ended calls.", _SECONDS)
        self._sent = histogram(
            "sent_total_compressed_message_size_bytes",
            "Bytes of the messages that were sent in an ended call.",
            _BYTES,
        )
        self._received = histogram(
            "rcvd_total_compressed_message_size_bytes",
            "Bytes of the messages that were received in an ended call.",
            _BYTES,
        )

    def on_call_started(self, method: str) -> None:
        self._started.labels(_grpc_name(method)).inc()

    def on_call(self, call: EndedCall) -> None:
        self._calls.labels(call.method, call.status).inc()
        labels = _grpc_name(call.method), call.status
        self._seconds.labels(*labels).observe(call.seconds)
        self._sent.labels(*labels).observe(call.sent_bytes)
        self._received.labels(*labels).observe(call.received_bytes)


def _grpc_name(method: str) -> str:
    """Returns a method's name as A66 has it: without the leading slash, and `other`."""
    return "other" if method == "unknown" else method.removeprefix("/")
