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
from prometheus_client.metrics import MetricWrapperBase
from typing_extensions import override

from infeed.shared.errors import SourceError
from infeed.shared.spec import OnError
from infeed_server.engines.monitor import EndedCall, Fault, Monitor, Refusal, Stage, fault_of
from infeed_server.observe.callback_metrics import (
    COUNTERS_READ,
    GAUGES_READ,
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
_GRPC_CALL = ("grpc_method", "grpc_status")
_FAILED = "Failed samples, by action: raise, substitute or mask."
_FAULTS = "Batches refused for their data, by fault: changed, damaged or storage (not readable)."
_STAGES = "Seconds that one batch spent in each stage: read, transform, encode or send."
_UNLOGGED = "Bad samples that could not be written to the quarantine log."
_BYTES = "Bytes of the messages that were {} in an ended call.".format
_SIZE = "grpc_server_call_{}_total_compressed_message_size_bytes".format

# The names of gRPC's proposal A66 in Prometheus' spelling; grpcio emits none by itself.
_COUNTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("infeed_batches", "Batches that were sent completely.", _PIPELINE),
    ("infeed_samples", "Samples in the sent batches.", _PIPELINE),
    ("infeed_sent_bytes", "Payload bytes of the sent batches.", _PIPELINE),
    ("infeed_bad_samples", _FAILED, ("pipeline", "action")),
    ("infeed_source_errors", _FAULTS, ("pipeline", "fault")),
    ("infeed_quarantine_failures", _UNLOGGED, _PIPELINE),
    ("infeed_calls", "Ended calls, by method and gRPC status.", ("method", "status")),
    ("infeed_refused", "Calls that were refused, by reason.", ("reason",)),
    ("grpc_server_call_started", "Calls that have begun.", ("grpc_method",)),
)
_HISTOGRAMS = (
    ("infeed_stage_seconds", _STAGES, ("pipeline", "stage"), _STAGE_BUCKETS),
    ("grpc_server_call_duration_seconds", "Duration of ended calls.", _GRPC_CALL, _CALL_BUCKETS),
    (_SIZE("sent"), _BYTES("sent"), _GRPC_CALL, _SIZE_BUCKETS),
    (_SIZE("rcvd"), _BYTES("received"), _GRPC_CALL, _SIZE_BUCKETS),
)

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
        options: dict[str, Any] = {"registry": self.registry}
        self._streams = Gauge("infeed_streams", "Open streams.", _PIPELINE, **options)
        self._counters = {row[0]: Counter(*row, **options) for row in _COUNTERS}
        self._histograms = {
            name: Histogram(name, text, labels, buckets=buckets, **options)
            for name, text, labels, buckets in _HISTOGRAMS
        }
        self._of_pipelines: list[tuple[MetricWrapperBase, tuple[str, ...]]] = [
            (self._streams, ()),
            *((self._counters[row[0]], row[2][1:]) for row in _COUNTERS if "pipeline" in row[2]),
            *(
                (self._histograms[row[0]], row[2][1:])
                for row in _HISTOGRAMS
                if "pipeline" in row[2]
            ),
        ]
        """The metrics of each pipeline, and their labels after the first."""
        for reason in _LABEL_VALUES["reason"]:
            self._counters["infeed_refused"].labels(reason)
        for row in (*GAUGES_READ, *COUNTERS_READ):
            family = CounterMetricFamily if row in COUNTERS_READ else GaugeMetricFamily
            self.registry.register(CallbackCollector(family, *row, partial(self._read, row[0])))

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

    def _count(self, name: str, *labels: str, amount: float = 1) -> None:
        self._counters[name].labels(*labels).inc(amount)

    @override
    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        self._count("infeed_batches", pipeline)
        self._count("infeed_samples", pipeline, amount=samples)
        self._count("infeed_sent_bytes", pipeline, amount=size)

    @override
    def on_stage(self, pipeline: str, stage: Stage, seconds: float, trace_id: str = "") -> None:
        exemplar = {"trace_id": trace_id} if trace_id else None
        self._histograms["infeed_stage_seconds"].labels(pipeline, stage).observe(seconds, exemplar)

    @override
    def on_bad_sample(self, pipeline: str, action: OnError) -> None:
        self._count("infeed_bad_samples", pipeline, action)

    @override
    def on_source_error(self, pipeline: str, error: SourceError) -> None:
        fault, file = fault_of(error), error.metadata.get("file")
        self._count("infeed_source_errors", pipeline, fault)
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        shown = {"time": time, "fault": fault, "file": file, "error": error.message}
        self.source_errors[pipeline] = shown
        key = (pipeline, fault, file)
        if key not in self._logged_files and len(self._logged_files) < _MAX_LOGGED_FILES:
            self._logged_files.add(key)
            extra = {"fields": {"pipeline": pipeline, **error.metadata}}
            log.error("batches of %r are refused: %s", pipeline, error.message, extra=extra)

    @override
    def on_quarantine_failed(self, pipeline: str) -> None:
        self._count("infeed_quarantine_failures", pipeline)

    @override
    def on_stream_opened(self, pipeline: str) -> None:
        self._streams.labels(pipeline).inc()

    @override
    def on_stream_closed(self, pipeline: str) -> None:
        self._streams.labels(pipeline).dec()

    @override
    def on_refused(self, reason: Refusal) -> None:
        self._count("infeed_refused", reason)

    @override
    def on_call_started(self, method: str) -> None:
        self._count("grpc_server_call_started", _grpc_name(method))

    @override
    def on_call(self, call: EndedCall) -> None:
        self._count("infeed_calls", call.method, call.status)
        values = (call.seconds, call.sent_bytes, call.received_bytes)
        for (name, *_), value in zip(_HISTOGRAMS[1:4], values, strict=True):
            self._histograms[name].labels(_grpc_name(call.method), call.status).observe(value)


def _grpc_name(method: str) -> str:
    """Returns a method's name as A66 has it: without the leading slash, and `other`."""
    return "other" if method == "unknown" else method.removeprefix("/")
