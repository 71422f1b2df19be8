"""Tables of the server's metrics: name, text and labels of each."""

from __future__ import annotations

from typing import get_args

from infeed.shared.spec import OnError
from infeed_server.engines.monitor import Fault, Refusal, Stage

_STAGE_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""Seconds, from sending a cached batch to reading one from an object store."""

_CALL_BUCKETS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400)
"""Seconds, from a health check to the stream of a training."""

_SIZE_BUCKETS = tuple(1 << power for power in range(10, 48, 4))
"""Bytes, from a request of 1 KiB to the batches of a training, 64 TiB."""

Row = tuple[str, str, tuple[str, ...]]
"""Name, text and labels of a metric."""

_PIPELINE = ("pipeline",)

LABEL_VALUES = {
    "action": get_args(OnError),
    "fault": get_args(Fault),
    "stage": get_args(Stage),
    "reason": get_args(Refusal),
}
"""The values of labels that are known beforehand: series with them are exposed from the start."""

COUNTERS: tuple[Row, ...] = (
    ("infeed_batches", "Batches that were sent completely.", _PIPELINE),
    ("infeed_samples", "Samples in the sent batches.", _PIPELINE),
    ("infeed_sent_bytes", "Payload bytes of the sent batches.", _PIPELINE),
    (
        "infeed_bad_samples",
        "Failed samples, by action: raise, substitute or mask.",
        ("pipeline", "action"),
    ),
    (
        "infeed_source_errors",
        "Batches refused for their data, by fault: changed, damaged or storage (not readable).",
        ("pipeline", "fault"),
    ),
    (
        "infeed_quarantine_failures",
        "Bad samples that could not be written to the quarantine log.",
        _PIPELINE,
    ),
    ("infeed_calls", "Ended calls, by method and gRPC status.", ("method", "status")),
    ("infeed_refused", "Calls that were refused, by reason.", ("reason",)),
    # Those of gRPC's proposal A66 in Prometheus' spelling; grpcio emits none by itself.
    ("grpc_server_call_started", "Calls that have begun.", ("grpc_method",)),
)

_CALL_LABELS = ("grpc_method", "grpc_status")

HISTOGRAMS: tuple[tuple[str, str, tuple[str, ...], tuple[float, ...]], ...] = (
    (
        "infeed_stage_seconds",
        "Seconds that one batch spent in each stage: read, transform, encode or send.",
        ("pipeline", "stage"),
        _STAGE_BUCKETS,
    ),
    (
        "grpc_server_call_duration_seconds",
        "Duration of ended calls.",
        _CALL_LABELS,
        _CALL_BUCKETS,
    ),
    (
        "grpc_server_call_sent_total_compressed_message_size_bytes",
        "Bytes of the messages that were sent in an ended call.",
        _CALL_LABELS,
        _SIZE_BUCKETS,
    ),
    (
        "grpc_server_call_rcvd_total_compressed_message_size_bytes",
        "Bytes of the messages that were received in an ended call.",
        _CALL_LABELS,
        _SIZE_BUCKETS,
    ),
)

DESIRED_SERVERS: Row = (
    "infeed_desired_servers",
    "Servers like this one that would feed all connected trainers without waits.",
    (),
)

GAUGES_READ: tuple[Row, ...] = (
    ("infeed_queued_requests", "Requests that wait for their batch.", _PIPELINE),
    (
        "infeed_unsent_batches",
        "Batches in progress, and finished ones that are not sent yet.",
        _PIPELINE,
    ),
    ("infeed_unsent_bytes", "Encoded size of the unsent batches.", _PIPELINE),
    ("infeed_window_bytes", "Bytes of dataset batches that are kept for slower ranks.", _PIPELINE),
    ("infeed_unsent_limit_bytes", "Limit on the unsent bytes of all pipelines.", ()),
    (
        "infeed_pipeline_ready",
        "Whether the pipeline is ready: 1, or 0 for a reason that /readyz names.",
        _PIPELINE,
    ),
    (
        "infeed_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate of --tls-cert expires.",
        (),
    ),
    ("infeed_trainers", "Connected trainers.", _PIPELINE),
    (
        "infeed_wait_ratio",
        "Share of its last seconds that the rank waited which waits most, 0 to 1.",
        _PIPELINE,
    ),
    DESIRED_SERVERS,
)
"""Gauges whose values a function returns at every scrape; none before `Metrics.read`."""

COUNTERS_READ: tuple[Row, ...] = (
    (
        "infeed_pipeline_state_seconds",
        "Seconds of waiting for a request, a stream with room (no_budget), source or transforms.",
        ("pipeline", "state"),
    ),
)
"""Counters whose values a function returns."""
