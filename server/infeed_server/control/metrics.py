"""Prometheus metrics of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from infeed.shared.errors import SourceError
from infeed.shared.spec import OnError
from infeed_server.control.call_metrics import CallMetrics
from infeed_server.control.collectors import CallbackCollector, LabelledValues, SampledCollector
from infeed_server.control.serving_gauges import ServingGauges
from infeed_server.engines.monitor import EndedCall, Fault, Refusal, Stage, fault_of

_STAGES = get_args(Stage)

_STAGE_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""Seconds, from sending a cached batch to reading one from an object store."""


class Queues(Protocol):
    """The queues of a pipeline. Every method is quick and does not raise."""

    def queued_requests(self) -> int: ...

    def unsent_batches(self) -> int: ...

    def unsent_bytes(self) -> int: ...

    def window_bytes(self) -> int: ...


class TrainersView(Protocol):
    """The server's view of its trainers and pipelines. Every method is quick."""

    def trainers(self) -> LabelledValues:
        """Returns the connected trainers by (pipeline,)."""

    def wait_ratios(self) -> LabelledValues:
        """Returns the wait share of the rank that waits most, by (pipeline,)."""

    def state_seconds(self) -> LabelledValues:
        """Returns the time in each state by (pipeline, state)."""

    def desired_servers(self) -> LabelledValues:
        """Returns the number of servers that would be enough, by ()."""


DESIRED_SERVERS = "infeed_desired_servers"


def desired_servers_gauge(values: Callable[[], LabelledValues]) -> CallbackCollector:
    """Returns the gauge of `infeed_desired_servers`."""
    text = "Servers like this one that would feed all connected trainers without waits."
    return CallbackCollector(GaugeMetricFamily, DESIRED_SERVERS, text, (), values)


class Metrics:
    """The server's counters, gauges and histograms. Thread-safe.

    Each instance has its own registry, so two servers in one process have separate metrics.
    """

    def __init__(self, version: str, tensorflow: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._process = SampledCollector(ProcessCollector(registry=None))
        registry.register(self._process)
        Info("infeed_build", "Versions of this server.", registry=registry).info(
            {"version": version, "tensorflow": tensorflow}
        )

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"infeed_{name}", text, ("pipeline", *labels), registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"infeed_{name}", text, ("pipeline",), registry=registry)

        self._batches = counter("batches_total", "Batches that were sent completely.")
        self._samples = counter("samples_total", "Samples in the sent batches.")
        self._sent_bytes = counter("sent_bytes_total", "Payload bytes of the sent batches.")
        self._bad = counter(
            "bad_samples_total",
            "Failed samples, by action: raise, substitute or mask.",
            "action",
        )
        self._source_errors = counter(
            "source_errors_total",
            "Batches refused because their data is changed, damaged or not readable (storage), by "
            "fault.",
            "fault",
        )
        self._quarantine_failures = counter(
            "quarantine_failures_total",
            "Bad samples that could not be written to the quarantine log.",
        )
        self._streams = gauge("streams", "Open streams.")
        self._queued = gauge("queued_requests", "Requests that wait for their batch.")
        self._ready = gauge(
            "unsent_batches", "Batches in progress, and finished ones that are not sent yet."
        )
        self._unsent = gauge("unsent_bytes", "Encoded size of the unsent batches.")
        self._window = gauge(
            "window_bytes", "Bytes of dataset batches that are kept for slower ranks."
        )
        self._limit = Gauge(
            "infeed_unsent_limit_bytes",
            "Limit on the unsent bytes of all pipelines.",
            registry=registry,
        )
        self._calls = CallMetrics(registry)
        self.serving = ServingGauges(registry)
        self._refused = Counter(
            "infeed_refused_total",
            "Calls that were refused, by reason.",
            ("reason",),
            registry=registry,
        )
        for reason in get_args(Refusal):
            self._refused.labels(reason)
        self._trainers: TrainersView | None = None
        self._expose_trainers()
        self._seconds = Histogram(
            "infeed_stage_seconds",
            "Seconds that one batch spent in each stage: read, transform, encode or send.",
            ("pipeline", "stage"),
            buckets=_STAGE_BUCKETS,
            registry=registry,
        )

    def _expose_trainers(self) -> None:
        def expose(
            family: type[CounterMetricFamily | GaugeMetricFamily],
            name: str,
            text: str,
            labels: tuple[str, ...],
            values: Callable[[TrainersView], LabelledValues],
        ) -> None:
            self.registry.register(
                CallbackCollector(
                    *(family, f"infeed_{name}", text, labels),
                    lambda: values(self._trainers) if self._trainers else {},
                )
            )

        expose(
            *(GaugeMetricFamily, "trainers", "Connected trainers.", ("pipeline",)),
            lambda view: view.trainers(),
        )
        expose(
            GaugeMetricFamily,
            "wait_ratio",
            "Share of its last seconds that the rank waited which waits most, 0 to 1.",
            ("pipeline",),
            lambda view: view.wait_ratios(),
        )
        expose(
            CounterMetricFamily,
            "pipeline_state_seconds",
            "Seconds that the pipeline waited for a request, a stream with room, the source or the "
            "transforms: no_request, no_budget, source or transform.",
            ("pipeline", "state"),
            lambda view: view.state_seconds(),
        )
        self.registry.register(
            desired_servers_gauge(
                lambda: self._trainers.desired_servers() if self._trainers else {}
            )
        )

    def update(self) -> None:
        """Renews the metrics that take system calls. Called every second."""
        self._process.update()
        self.serving.update()

    def add_pipeline(self, pipeline: str) -> None:
        """Initializes the pipeline's metrics to zero, so that they are exposed from the start."""
        counters = (self._batches, self._samples, self._sent_bytes, self._quarantine_failures)
        for counter in counters:
            counter.labels(pipeline)
        for gauge in (self._streams, self._queued, self._ready, self._unsent, self._window):
            gauge.labels(pipeline)
        for action in get_args(OnError):
            self._bad.labels(pipeline, action)
        for fault in get_args(Fault):
            self._source_errors.labels(pipeline, fault)
        for stage in _STAGES:
            self._seconds.labels(pipeline, stage)

    # The methods of `engines.monitor.Monitor`.

    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        self._batches.labels(pipeline).inc()
        self._samples.labels(pipeline).inc(samples)
        self._sent_bytes.labels(pipeline).inc(size)

    def on_stage(self, pipeline: str, stage: Stage, seconds: float, trace_id: str = "") -> None:
        # An exemplar has at most 128 characters of names and values; OpenMetrics alone shows it.
        exemplar = {"trace_id": trace_id} if trace_id else None
        self._seconds.labels(pipeline, stage).observe(seconds, exemplar)

    def on_bad_sample(self, pipeline: str, action: OnError) -> None:
        self._bad.labels(pipeline, action).inc()

    def on_source_error(self, pipeline: str, error: SourceError) -> None:
        self._source_errors.labels(pipeline, fault_of(error)).inc()

    def on_quarantine_failed(self, pipeline: str) -> None:
        self._quarantine_failures.labels(pipeline).inc()

    def on_stream_opened(self, pipeline: str) -> None:
        self._streams.labels(pipeline).inc()

    def on_stream_closed(self, pipeline: str) -> None:
        self._streams.labels(pipeline).dec()

    def on_refused(self, reason: Refusal) -> None:
        self._refused.labels(reason).inc()

    def on_call_started(self, method: str) -> None:
        self._calls.on_call_started(method)

    def on_call(self, call: EndedCall) -> None:
        self._calls.on_call(call)

    def watch(self, pipeline: str, queues: Queues) -> None:
        """Exposes the state of a pipeline's queues at every scrape."""
        self._queued.labels(pipeline).set_function(queues.queued_requests)
        self._ready.labels(pipeline).set_function(queues.unsent_batches)
        self._unsent.labels(pipeline).set_function(queues.unsent_bytes)
        self._window.labels(pipeline).set_function(queues.window_bytes)

    def watch_trainers(self, view: TrainersView) -> None:
        """Exposes trainers, and what pipelines wait for, at every scrape."""
        self._trainers = view

    def set_limit(self, unsent_bytes: int) -> None:
        """Sets the limit on the unsent bytes of all pipelines."""
        self._limit.set(unsent_bytes)
