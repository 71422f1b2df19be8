"""Metrics of a process: one registry, which counts events and reads values.

A metric that counts is a row of `EVENTS`; one that is read is a call of `Metrics.expose`, as in
`server_metrics.py`. The status takes its totals from here too, so `/api/v1` and `/metrics` agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any, get_args

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

from infeed.shared.spec import OnError
from infeed_server.engines.monitor import Fault, LabelledValues, Monitor, Refusal, Stage

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
"""Labels whose values are known beforehand: their series are exposed from the start."""

_PIPELINE = ("pipeline",)
_GRPC_CALL = ("grpc_method", "grpc_status")
_FAILED = "Slots of batches whose sample was bad, by action: raise, substitute or mask."
_FAULTS = "Batches refused for their data, by fault: changed, damaged or storage (unreadable)."
_STAGES = "Seconds that one batch spent in each stage: read, transform, encode or send."
_PARTS = "Samples in the sent batches of a mixture of at most 256 parts, by part."
_UNLOGGED = "Bad samples that could not be written to the quarantine log."
_DURATION = "Duration of ended calls."
_BYTES = "Bytes of the messages {} in an ended call.".format
_SIZE = "grpc_server_call_{}_total_compressed_message_size_bytes".format


def _histogram(buckets: tuple[float, ...]) -> Callable[..., Histogram]:
    return partial(Histogram, buckets=buckets)


Event = tuple[Callable[..., Any], str, str, tuple[str, ...]]
"""Kind, name, text and labels of a metric that counts."""

# The names of gRPC's proposal A66 in Prometheus' spelling; grpcio emits none by itself.
EVENTS: tuple[Event, ...] = (
    (Gauge, "infeed_streams", "Open streams.", _PIPELINE),
    (Counter, "infeed_batches", "Batches sent completely.", _PIPELINE),
    (Counter, "infeed_samples", "Samples in the sent batches.", _PIPELINE),
    (Counter, "infeed_part_samples", _PARTS, ("pipeline", "part")),
    (Counter, "infeed_sent_bytes", "Payload bytes of the sent batches.", _PIPELINE),
    (Counter, "infeed_bad_samples", _FAILED, ("pipeline", "action")),
    (Counter, "infeed_source_errors", _FAULTS, ("pipeline", "fault")),
    (Counter, "infeed_quarantine_failures", _UNLOGGED, _PIPELINE),
    (Counter, "infeed_calls", "Ended calls, by method and gRPC status.", ("method", "status")),
    (Counter, "infeed_refused", "Refused calls, by reason.", ("reason",)),
    (Counter, "grpc_server_call_started", "Started calls.", ("grpc_method",)),
    (_histogram(_STAGE_BUCKETS), "infeed_stage_seconds", _STAGES, ("pipeline", "stage")),
    (_histogram(_CALL_BUCKETS), "grpc_server_call_duration_seconds", _DURATION, _GRPC_CALL),
    (_histogram(_SIZE_BUCKETS), _SIZE("sent"), _BYTES("sent"), _GRPC_CALL),
    (_histogram(_SIZE_BUCKETS), _SIZE("rcvd"), _BYTES("received"), _GRPC_CALL),
)


class Metrics(Monitor):
    """Counters, gauges and histograms. Thread-safe. Each instance has its own registry, so two
    servers in one process have separate metrics."""

    def __init__(self, events: Sequence[Event] = EVENTS, **build: str) -> None:
        """`build` holds the labels of `infeed_build_info`."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("infeed_build", "Versions of this process.", registry=self.registry).info(build)
        self._counted: dict[str, Any] = {}
        self._of_pipelines: list[tuple[Any, tuple[str, ...]]] = []
        """The counted metrics per pipeline, and their labels after `pipeline`, whose values are
        known beforehand."""
        for kind, name, text, labels in events:
            self._counted[name] = metric = kind(name, text, labels, registry=self.registry)
            if labels[0] == "pipeline" and _LABEL_VALUES.keys() >= {*labels[1:]}:
                self._of_pipelines.append((metric, labels[1:]))
            elif labels[0] in _LABEL_VALUES:
                for value in _LABEL_VALUES[labels[0]]:
                    metric.labels(value)

    def add_pipeline(self, pipeline: str) -> None:
        """Initializes the pipeline's metrics to zero, so that they are exposed from the start."""
        for metric, others in self._of_pipelines:
            for values in product(*(_LABEL_VALUES[label] for label in others)):
                metric.labels(pipeline, *values)

    def totals(self) -> dict[str, dict[str, float]]:
        """Returns the counts so far by pipeline, with the time of each stage as `STAGE_seconds`."""
        totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for metric, _ in self._of_pipelines:
            for sample in (sample for family in metric.collect() for sample in family.samples):
                name, _, kind = sample.name.removeprefix("infeed_").rpartition("_")
                if kind == "sum":
                    name = f"{sample.labels['stage']}_seconds"
                if kind in ("total", "sum", "streams"):
                    key = {"": "streams", "sent_bytes": "bytes"}.get(name, name)
                    totals[sample.labels["pipeline"]][key] += sample.value
        return {pipeline: dict(values) for pipeline, values in totals.items()}

    @override
    def count(self, metric: str, *labels: str, amount: float = 1) -> None:
        self._counted[metric].labels(*labels).inc(amount)

    @override
    def measure(self, metric: str, value: float, *labels: str, trace_id: str = "") -> None:
        exemplar = {"trace_id": trace_id} if trace_id else None
        self._counted[metric].labels(*labels).observe(value, exemplar)

    @override
    def expose(
        self, metric: str, text: str, read: Callable[[], LabelledValues], *labels: str
    ) -> None:
        self.registry.register(ReadMetric(metric, text, read, *labels))


class ReadMetric(Collector):
    """A metric whose values come from a quick function at every scrape: a counter if its name ends
    with `_total`, otherwise a gauge."""

    def __init__(
        self, name: str, text: str, read: Callable[[], LabelledValues], *labels: str
    ) -> None:
        family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        self._new = partial(family, name, text, labels=labels)
        self._read = read

    def collect(self) -> Iterable[Metric]:
        metric = self._new()
        for labels, value in self._read().items():
            metric.add_metric(labels, value)
        return [metric]

    def describe(self) -> Iterable[Metric]:
        return [self._new()]
