"""Metrics of the server: one registry, which counts what engines and streams report.

The status reads its totals here too, so that `/api/v1` and `/metrics` have the same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, product
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    Metric,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from infeed.shared.errors import SourceError
from infeed.shared.spec import OnError
from infeed_server.engines.monitor import EndedCall, Monitor, Refusal, Stage, fault_of
from infeed_server.observe.metric_tables import (
    COUNTERS,
    COUNTERS_READ,
    GAUGES_READ,
    HISTOGRAMS,
    LABEL_VALUES,
)
from infeed_server.observe.source_errors import SourceErrors

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

LabelledValues = Mapping[tuple[str, ...], float]
"""Label values → the value of a metric."""


class CallbackCollector(Collector):
    """A metric whose values a quick function returns at every scrape."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        text: str,
        labels: tuple[str, ...],
        values: Callable[[], LabelledValues],
    ) -> None:
        self._family, self._name, self._text, self._labels = family, name, text, labels
        self._values = values

    def collect(self) -> Iterable[Metric]:
        metric = self._family(self._name, self._text, labels=self._labels)
        for labels, value in self._values().items():
            metric.add_metric(labels, value)
        return [metric]

    def describe(self) -> Iterable[Metric]:
        return [self._family(self._name, self._text, labels=self._labels)]


class Metrics(Monitor):
    """The server's counters, gauges and histograms. Thread-safe.

    Each instance has its own registry, so two servers in one process have separate metrics.
    """

    def __init__(self, version: str, tensorflow: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.source_errors = SourceErrors()
        self._readers: dict[str, Callable[[], LabelledValues]] = {}
        ProcessCollector(registry=registry)
        versions = {"version": version, "tensorflow": tensorflow}
        Info("infeed_build", "Versions of this server.", registry=registry).info(versions)
        self._counters = {row[0]: Counter(*row, registry=registry) for row in COUNTERS}
        self._streams = Gauge("infeed_streams", "Open streams.", ("pipeline",), registry=registry)
        self._histograms = {
            name: Histogram(name, text, labels, buckets=buckets, registry=registry)
            for name, text, labels, buckets in HISTOGRAMS
        }
        for row in GAUGES_READ:
            values = partial(self._read, row[0])
            registry.register(CallbackCollector(GaugeMetricFamily, *row, values))
        for row in COUNTERS_READ:
            values = partial(self._read, row[0])
            registry.register(CallbackCollector(CounterMetricFamily, *row, values))
        for reason in get_args(Refusal):
            self._counters["infeed_refused"].labels(reason)

    def read(self, readers: Mapping[str, Callable[[], LabelledValues]]) -> None:
        """Exposes what quick functions return, by the name of the metric, at every scrape."""
        assert readers.keys() <= {name for name, _, _ in (*GAUGES_READ, *COUNTERS_READ)}
        self._readers.update(readers)

    def add_pipeline(self, pipeline: str) -> None:
        """Initializes the pipeline's metrics to zero, so that they are exposed from the start."""
        self._streams.labels(pipeline)
        metrics = {**self._counters, **self._histograms}
        labels_of = {row[0]: row[2] for row in COUNTERS} | {row[0]: row[2] for row in HISTOGRAMS}
        for name, (first, *others) in labels_of.items():
            if first == "pipeline":
                for values in product(*(LABEL_VALUES[label] for label in others)):
                    metrics[name].labels(pipeline, *values)

    def totals(self) -> dict[str, dict[str, float]]:
        """Returns by pipeline what has been counted so far, and `STAGE_seconds` of each stage."""
        totals: defaultdict[str, defaultdict[str, float]]
        totals = defaultdict(lambda: defaultdict(float))
        stages = self._histograms["infeed_stage_seconds"]
        for metric in (*self._counters.values(), self._streams, stages):
            for sample in chain.from_iterable(family.samples for family in metric.collect()):
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
    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        self._counters["infeed_batches"].labels(pipeline).inc()
        self._counters["infeed_samples"].labels(pipeline).inc(samples)
        self._counters["infeed_sent_bytes"].labels(pipeline).inc(size)

    @override
    def on_stage(self, pipeline: str, stage: Stage, seconds: float, trace_id: str = "") -> None:
        # An exemplar has at most 128 characters of names and values; OpenMetrics alone shows it.
        exemplar = {"trace_id": trace_id} if trace_id else None
        self._histograms["infeed_stage_seconds"].labels(pipeline, stage).observe(seconds, exemplar)

    @override
    def on_bad_sample(self, pipeline: str, action: OnError) -> None:
        self._counters["infeed_bad_samples"].labels(pipeline, action).inc()

    @override
    def on_source_error(self, pipeline: str, error: SourceError) -> None:
        self._counters["infeed_source_errors"].labels(pipeline, fault_of(error)).inc()
        self.source_errors.add(pipeline, error)

    @override
    def on_quarantine_failed(self, pipeline: str) -> None:
        self._counters["infeed_quarantine_failures"].labels(pipeline).inc()

    @override
    def on_stream_opened(self, pipeline: str) -> None:
        self._streams.labels(pipeline).inc()

    @override
    def on_stream_closed(self, pipeline: str) -> None:
        self._streams.labels(pipeline).dec()

    @override
    def on_refused(self, reason: Refusal) -> None:
        self._counters["infeed_refused"].labels(reason).inc()

    @override
    def on_call_started(self, method: str) -> None:
        self._counters["grpc_server_call_started"].labels(_grpc_name(method)).inc()

    @override
    def on_call(self, call: EndedCall) -> None:
        self._counters["infeed_calls"].labels(call.method, call.status).inc()
        labels = _grpc_name(call.method), call.status
        sizes = "grpc_server_call_{}_total_compressed_message_size_bytes"
        values = {
            "grpc_server_call_duration_seconds": call.seconds,
            sizes.format("sent"): call.sent_bytes,
            sizes.format("rcvd"): call.received_bytes,
        }
        for name, value in values.items():
            self._histograms[name].labels(*labels).observe(value)


def _grpc_name(method: str) -> str:
    """Returns a method's name as A66 has it: without the leading slash, and `other`."""
    return "other" if method == "unknown" else method.removeprefix("/")
