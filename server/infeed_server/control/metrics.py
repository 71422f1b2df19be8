"""Metrics: what the server counts and measures, in Prometheus' terms."""

from __future__ import annotations

from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from infeed.spec import OnError
from infeed_server.control.asked import Asked, Labelled
from infeed_server.engines.monitor import Stage

STAGES = get_args(Stage)

# From a cached batch that is sent at once to one that an object store makes wait.
STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Queues(Protocol):
    """What waits in a pipeline. Every method is quick and does not raise."""

    def queued_requests(self) -> int: ...

    def unsent_batches(self) -> int: ...

    def unsent_bytes(self) -> int: ...

    def window_bytes(self) -> int: ...


class ShownService(Protocol):
    """TensorFlow's data service, as far as the server knows. Every method is quick."""

    def workers(self) -> Labelled:
        """How many workers there are, by ("answering",) and ("lost",)."""

    def served(self) -> Labelled:
        """Bytes that workers of the server's own have sent, by (address,)."""


class Metrics:
    """The server's counters, gauges and histograms. Thread-safe.

    Each instance has a registry of its own, so two servers in one process stay apart.
    """

    def __init__(self, version: str, tensorflow: str) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("infeed_build", "The versions of this server.", registry=registry).info(
            {"version": version, "tensorflow": tensorflow}
        )

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"infeed_{name}", text, ("pipeline", *labels), registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"infeed_{name}", text, ("pipeline",), registry=registry)

        self._batches = counter("batches_total", "Batches that were sent whole.")
        self._samples = counter("samples_total", "Samples in the batches that were sent.")
        self._sent_bytes = counter("sent_bytes_total", "Bytes of the payloads that were sent.")
        self._bad = counter("bad_samples_total", "Samples that failed, by what was done.", "action")
        self._streams = gauge("streams", "Streams that are open.")
        self._queued = gauge("queued_requests", "Requests that wait for their batch.")
        self._ready = gauge("unsent_batches", "Batches in the making, or made and not sent yet.")
        self._unsent = gauge("unsent_bytes", "What these take, as they travel.")
        self._window = gauge("window_bytes", "What is kept of datasets for ranks that lie behind.")
        self._limit = Gauge(
            "infeed_unsent_limit_bytes",
            "The bound on all pipelines' unsent bytes.",
            registry=registry,
        )
        self._service: ShownService | None = None
        registry.register(
            Asked(
                GaugeMetricFamily,
                "infeed_service_workers",
                "Workers of TensorFlow's data service, by whether they answer.",
                ("state",),
                self._service_workers,
            )
        )
        registry.register(
            Asked(
                GaugeMetricFamily,
                "infeed_service_served_bytes",
                "What each worker that this server started has sent since.",
                ("worker",),
                self._service_served,
            )
        )
        self._seconds = Histogram(
            "infeed_stage_seconds",
            "The time that one batch spent in each stage.",
            ("pipeline", "stage"),
            buckets=STAGE_BUCKETS,
            registry=registry,
        )

    def add_pipeline(self, pipeline: str) -> None:
        """Shows the pipeline's metrics as zero before anything happens to it."""
        for counter in (self._batches, self._samples, self._sent_bytes):
            counter.labels(pipeline)
        for gauge in (self._streams, self._queued, self._ready, self._unsent, self._window):
            gauge.labels(pipeline)
        for stage in STAGES:
            self._seconds.labels(pipeline, stage)

    def batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        """Counts one batch that was sent whole: its samples and its payload's size in bytes."""
        self._batches.labels(pipeline).inc()
        self._samples.labels(pipeline).inc(samples)
        self._sent_bytes.labels(pipeline).inc(size)

    def stage(self, pipeline: str, stage: Stage, seconds: float) -> None:
        """Notes the seconds that one batch spent in a stage."""
        self._seconds.labels(pipeline, stage).observe(seconds)

    def bad_sample(self, pipeline: str, action: OnError) -> None:
        """Counts one sample that could not be read or transformed."""
        self._bad.labels(pipeline, action).inc()

    def stream_opened(self, pipeline: str) -> None:
        """Counts a stream in; `stream_closed` must follow."""
        self._streams.labels(pipeline).inc()

    def stream_closed(self, pipeline: str) -> None:
        """Counts a stream out."""
        self._streams.labels(pipeline).dec()

    def watch(self, pipeline: str, queues: Queues) -> None:
        """Asks at every scrape what waits."""
        self._queued.labels(pipeline).set_function(queues.queued_requests)
        self._ready.labels(pipeline).set_function(queues.unsent_batches)
        self._unsent.labels(pipeline).set_function(queues.unsent_bytes)
        self._window.labels(pipeline).set_function(queues.window_bytes)

    def watch_service(self, service: ShownService) -> None:
        """Asks at every scrape for the workers of TensorFlow's data service."""
        self._service = service

    def set_limit(self, unsent_bytes: int) -> None:
        """Shows the bound on what all pipelines hold unsent."""
        self._limit.set(unsent_bytes)

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Everything, in the form that an HTTP `Accept` header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _service_workers(self) -> Labelled:
        return self._service.workers() if self._service else {}

    def _service_served(self) -> Labelled:
        return self._service.served() if self._service else {}


__all__ = ["STAGES", "STAGE_BUCKETS", "Metrics"]
