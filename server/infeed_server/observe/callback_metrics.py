"""Metrics whose values a function returns at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LabelledValues = Mapping[tuple[str, ...], float]
"""Label values → the value of a metric."""

DESIRED_SERVERS = (
    "infeed_desired_servers",
    "Servers like this one that would feed all connected trainers without waits.",
    (),
)

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
_PICTURES = "Pictures by decoder, native or tensorflow, where the native one can do the steps."
_REQUESTS = "Requests for bytes of objects in stores; obstore's own repetitions are not counted."
_RECEIVED = "Bytes of objects that were received from stores."

GAUGES_READ: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
)
"""Gauges whose values a function returns at every scrape; none before `Metrics.read`."""

COUNTERS_READ: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("infeed_pipeline_state_seconds", _STATE, ("pipeline", "state")),
    ("infeed_requested_samples", _ORIGIN, ("pipeline", "origin")),
    ("infeed_cache_reads", _CACHE, ("pipeline", "result")),
    ("infeed_pictures", _PICTURES, ("pipeline", "decoder")),
    ("infeed_store_requests", _REQUESTS, ()),
    ("infeed_store_received_bytes", _RECEIVED, ()),
)
"""Counters whose values a function returns."""


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
        self._new = partial(family, name, text, labels=labels)
        self._values = values

    def collect(self) -> Iterable[Metric]:
        metric = self._new()
        for labels, value in self._values().items():
            metric.add_metric(labels, value)
        return [metric]

    def describe(self) -> Iterable[Metric]:
        return [self._new()]
