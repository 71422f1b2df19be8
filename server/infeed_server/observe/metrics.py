"""Metrics of the server: one registry, which counts what engines and streams report.

The status reads its totals here too, so that `/api/v1` and `/metrics` have the same numbers.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial
from itertools import product
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from typing_extensions import override

from infeed.shared.errors import SourceError
from infeed.shared.spec import OnError
from infeed_server.engines.monitor import Fault, Monitor, Refusal, Stage, fault_of
from infeed_server.observe.callback_metrics import (
    DESIRED_SERVERS,
    CallbackCollector,
    LabelledValues,
)

log = logging.getLogger(__name__)

_MAX_LOGGED_FILES = 100
"""Files with a line in the log: more would flood it where a folder is away; the metric has all."""

_STAGE_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""Seconds, from sending a cached batch to reading one from an object store."""

_CALL_BUCKETS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400)
"""Seconds, from a health check to the stream of a training."""

_SIZE_BUCKETS = tuple(1 << power for power in range(10, 48, 4))
"""Bytes, from a request of 1 KiB to the batches of a training, 64 TiB."""

_LABEL_VALUES = {
    "action": get_args(OnError),
    "fault": get_args(Fault),
    "stage": get_args(Stage),
    "reason": get_args(Refusal),
}
"""The values of labels that are known beforehand: series with them are exposed from the start."""

_PIPELINE = ("pipeline",)
_UNSENT = "Batches in progress, and finished ones that are not sent yet."
_READY = "Whether the pipeline is ready: 1, or 0 for a reason that /readyz names."
_EXPIRY = "Unix time at which the certificate of --tls-cert expires."
_WAIT = "Share of its last seconds that the rank waited which waits most, 0 to 1."
_STATE = (
    "Seconds of waiting for a request, a stream with room (no_budget), source, transforms, or the "
    "examination of bad samples (repair)."
)
_ORIGIN = "Samples of started requests, by origin: computed, shared or recomputed."
_CACHE = "Samples that were looked up in the cache, by result: hits or misses."
_PICTURES = "Pictures decoded for batches, by decoder: native or tensorflow."
_REQUESTS = "Requests for bytes of objects in stores; obstore's own repetitions are not counted."
_RECEIVED = "Bytes of objects that were received from stores."
_GRPC_CALL = ("grpc_method", "grpc_status")
_FAILED = "Slots of batches whose sample was bad, by action: raise, substitute or mask."
_FAULTS = "Batches refused for their data, by fault: changed, damaged or storage (not readable)."
_STAGES = "Seconds that one batch spent in each stage: read, transform, encode or send."
_UNLOGGED = "Bad samples that could not be written to the quarantine log."
_BYTES = "Bytes of the messages that were {} in an ended call.".format
_SIZE = "grpc_server_call_{}_total_compressed_message_size_bytes".format

# The names of gRPC's proposal A66 in Prometheus' spelling; grpcio emits none by itself.
_TABLE: dict[Any, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    Gauge: (("infeed_streams", "Open streams.", _PIPELINE),),
    Counter: (
        ("infeed_batches", "Batches that were sent completely.", _PIPELINE),
        ("infeed_samples", "Samples in the sent batches.", _PIPELINE),
        ("infeed_sent_bytes", "Payload bytes of the sent batches.", _PIPELINE),
        ("infeed_bad_samples", _FAILED, ("pipeline", "action")),
        ("infeed_source_errors", _FAULTS, ("pipeline", "fault")),
        ("infeed_quarantine_failures", _UNLOGGED, _PIPELINE),
        ("infeed_calls", "Ended calls, by method and gRPC status.", ("method", "status")),
        ("infeed_refused", "Calls that were refused, by reason.", ("reason",)),
        ("grpc_server_call_started", "Calls that have begun.", ("grpc_method",)),
    ),
    partial(Histogram, buckets=_STAGE_BUCKETS): (
        ("infeed_stage_seconds", _STAGES, ("pipeline", "stage")),
    ),
    partial(Histogram, buckets=_CALL_BUCKETS): (
        ("grpc_server_call_duration_seconds", "Duration of ended calls.", _GRPC_CALL),
    ),
    partial(Histogram, buckets=_SIZE_BUCKETS): (
        (_SIZE("sent"), _BYTES("sent"), _GRPC_CALL),
        (_SIZE("rcvd"), _BYTES("received"), _GRPC_CALL),
    ),
    GaugeMetricFamily: (
        ("infeed_queued_requests", "Requests that wait for their batch.", _PIPELINE),
        ("infeed_unsent_batches", _UNSENT, _PIPELINE),
        ("infeed_unsent_bytes", "Encoded size of the unsent batches.", _PIPELINE),
        ("infeed_window_bytes", "Bytes of batches that are kept for slower trainers.", _PIPELINE),
        ("infeed_cache_bytes", "Bytes of the samples in the pipeline's cache.", _PIPELINE),
        ("infeed_memory_limit_bytes", "Memory of the host, or the container's limit.", ()),
        ("infeed_shared_memory_bytes", "Memory shared with trainers on this host.", ()),
        ("infeed_unsent_limit_bytes", "Limit on the unsent bytes of all pipelines.", ()),
        ("infeed_pipeline_ready", _READY, _PIPELINE),
        ("infeed_certificate_expiry_timestamp_seconds", _EXPIRY, ()),
        ("infeed_trainers", "Connected trainers.", _PIPELINE),
        ("infeed_wait_ratio", _WAIT, _PIPELINE),
        DESIRED_SERVERS,
    ),
    CounterMetricFamily: (
        ("infeed_pipeline_state_seconds", _STATE, ("pipeline", "state")),
        ("infeed_requested_samples", _ORIGIN, ("pipeline", "origin")),
        ("infeed_cache_reads", _CACHE, ("pipeline", "result")),
        ("infeed_pictures", _PICTURES, ("pipeline", "decoder")),
        ("infeed_store_requests", _REQUESTS, ()),
        ("infeed_store_received_bytes", _RECEIVED, ()),
    ),
}
"""Name, text and labels of each metric, by what it is made with. `Monitor` counts; of the last two
kinds a function of `Metrics.read` returns the values at every scrape."""

_TOTALS = {
    "infeed_batches_total": "batches",
    "infeed_samples_total": "samples",
    "infeed_sent_bytes_total": "bytes",
    "infeed_bad_samples_total": "bad_samples",
    "infeed_quarantine_failures_total": "quarantine_failures",
    "infeed_source_errors_total": "source_errors",
    "infeed_streams": "streams",
}
"""The key of a pipeline's figure in the status, by the name of its samples."""


class Metrics(Monitor):
    """The server's counters, gauges and histograms. Thread-safe. Each instance has its own
    registry, so two servers in one process have separate metrics."""

    def __init__(self, version: str, tensorflow: str) -> None:
        self.registry = CollectorRegistry()
        self.source_errors: dict[str, dict[str, Any]] = {}
        """The last refused batch of each pipeline for JSON: time, fault, file and error."""
        self._logged_files: set[tuple[str, str, str | None]] = set()
        self._readers: dict[str, Callable[[], LabelledValues]] = {}
        ProcessCollector(registry=self.registry)
        versions = {"version": version, "tensorflow": tensorflow}
        Info("infeed_build", "Versions of this server.", registry=self.registry).info(versions)
        self._counted: dict[str, Any] = {}
        self._of_pipelines: list[tuple[Any, tuple[str, ...]]] = []
        """The counted metrics of each pipeline, and their labels after the first."""
        for kind, rows in _TABLE.items():
            for name, text, labels in rows:
                if kind in (GaugeMetricFamily, CounterMetricFamily):
                    read = partial(self._read, name)
                    self.registry.register(CallbackCollector(kind, name, text, read, labels))
                    continue
                self._counted[name] = metric = kind(name, text, labels, registry=self.registry)
                if "pipeline" in labels:
                    self._of_pipelines.append((metric, labels[1:]))
        for reason in _LABEL_VALUES["reason"]:
            self._counted["infeed_refused"].labels(reason)

    def read(self, readers: Mapping[str, Callable[[], LabelledValues]]) -> None:
        """Exposes what quick functions return, by the name of the metric, at every scrape."""
        self._readers.update(readers)

    def add_pipeline(self, pipeline: str) -> None:
        """Initializes the pipeline's metrics to zero, so that they are exposed from the start."""
        for metric, others in self._of_pipelines:
            for values in product(*(_LABEL_VALUES[label] for label in others)):
                metric.labels(pipeline, *values)

    def totals(self) -> dict[str, dict[str, float]]:
        """Returns by pipeline what has been counted so far, and `STAGE_seconds` of each stage."""
        totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for metric, _ in self._of_pipelines:
            for sample in (sample for family in metric.collect() for sample in family.samples):
                key = _TOTALS.get(sample.name)
                if sample.name == "infeed_stage_seconds_sum":
                    key = f"{sample.labels['stage']}_seconds"
                if key is not None:
                    totals[sample.labels["pipeline"]][key] += sample.value
        return {pipeline: dict(values) for pipeline, values in totals.items()}

    def _read(self, name: str) -> LabelledValues:
        reader = self._readers.get(name)
        return reader() if reader else {}

    @override
    def count(self, metric: str, *labels: str, amount: float = 1) -> None:
        self._counted[metric].labels(*labels).inc(amount)

    @override
    def measure(self, metric: str, value: float, *labels: str, trace_id: str = "") -> None:
        exemplar = {"trace_id": trace_id} if trace_id else None
        self._counted[metric].labels(*labels).observe(value, exemplar)

    @override
    def on_source_error(self, pipeline: str, error: SourceError) -> None:
        fault, file = fault_of(error), error.metadata.get("file")
        self.count("infeed_source_errors", pipeline, fault)
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        shown = {"time": time, "fault": fault, "file": file, "error": error.message}
        self.source_errors[pipeline] = shown
        key = (pipeline, fault, file)
        if key not in self._logged_files and len(self._logged_files) < _MAX_LOGGED_FILES:
            self._logged_files.add(key)
            extra = {"fields": {"pipeline": pipeline, **error.metadata}}
            log.error("batches of %r are refused: %s", pipeline, error.message, extra=extra)
