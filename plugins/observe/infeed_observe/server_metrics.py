"""Metrics of a server that are read at every scrape: each is one call of `expose`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from infeed_observe.desired_servers import DESIRED_SERVERS
from infeed_observe.observer import Observer, queues
from infeed_server.engines.figures import Figures
from infeed_server.engines.monitor import LabelledValues
from infeed_server.runtime.certificate import tls_files
from infeed_server.storage.stores import traffic

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


def expose_server(observer: Observer) -> None:
    """Exposes what an observer and its facts have."""
    facts, status, process = observer.facts, observer.status, observer.reports
    tls = tls_files(facts.options)
    of_queue, of_engines = partial(_of_queue, observer), partial(_of_engines, observer)
    expose = observer.metrics.expose

    def expiry() -> LabelledValues:
        end = tls.expires_at() if tls else None
        return {} if end is None else {(): end}

    def ready() -> LabelledValues:
        return {(name,): float(part.ready) for name, part in facts.health.parts.items()}

    def one(metric: str, text: str, value: Callable[[], float]) -> None:
        expose(metric, text, lambda: {(): value()})

    for queue, text in (
        ("queued_requests", "Requests that wait for their batch."),
        ("unsent_batches", _UNSENT),
        ("unsent_bytes", "Encoded size of the unsent batches."),
        ("window_bytes", "Bytes of batches that are kept for slower trainers."),
        ("cache_bytes", "Bytes of the samples in the pipeline's cache."),
    ):
        expose(f"infeed_{queue}", text, partial(of_queue, queue), "pipeline")
    text = "Memory of the host, or the container's limit."
    one("infeed_memory_limit_bytes", text, lambda: process.process.memory_limit_bytes)
    text = "Memory shared with trainers on this host."
    one("infeed_shared_memory_bytes", text, lambda: facts.budget.reserved)
    text = "Limit on the unsent bytes of all pipelines."
    one("infeed_unsent_limit_bytes", text, lambda: facts.budget.limit)
    expose("infeed_pipeline_ready", _READY, ready, "pipeline")
    expose("infeed_certificate_expiry_timestamp_seconds", _EXPIRY, expiry)
    trainers = partial(_labelled, lambda: status.trainers)
    expose("infeed_trainers", "Connected trainers.", trainers, "pipeline")
    waits = partial(_labelled, lambda: status.wait_shares)
    expose("infeed_wait_ratio", _WAIT, waits, "pipeline")
    one(*DESIRED_SERVERS, lambda: status.desired_servers)
    states = of_engines(lambda figures: figures.state_seconds.items())
    expose("infeed_pipeline_state_seconds_total", _STATE, states, "pipeline", "state")
    origins = of_engines(partial(_sample_counts, is_cache=False))
    expose("infeed_requested_samples_total", _ORIGIN, origins, "pipeline", "origin")
    results = of_engines(partial(_sample_counts, is_cache=True))
    expose("infeed_cache_reads_total", _CACHE, results, "pipeline", "result")
    pictures = of_engines(lambda figures: figures.pictures.items())
    expose("infeed_pictures_total", _PICTURES, pictures, "pipeline", "decoder")
    one("infeed_store_requests_total", _REQUESTS, lambda: traffic()[0])
    one("infeed_store_received_bytes_total", _RECEIVED, lambda: traffic()[1])


def _of_queue(observer: Observer, queue: str) -> LabelledValues:
    return {(name,): queues(engine)[queue] for name, engine in observer.engines().items()}


def _of_engines(
    observer: Observer, of_figures: Callable[[Figures], Iterable[tuple[str, float]]]
) -> Callable[[], LabelledValues]:
    """Returns a function that reads figures with a label of every engine."""
    return lambda: {
        (name, label): value
        for name, engine in observer.engines().items()
        for label, value in of_figures(engine.figures())
    }


def _sample_counts(figures: Figures, *, is_cache: bool) -> Iterable[tuple[str, float]]:
    """Yields the counts of the cache, by result, or the others, by origin."""
    for count, value in figures.sample_counts.items():
        if count.startswith("cache_") == is_cache:
            yield count.removeprefix("cache_").removesuffix("_samples"), value


def _labelled(values: Callable[[], Mapping[str, float | None]]) -> LabelledValues:
    """Returns the values that are known, by their label."""
    return {(name,): value for name, value in values().items() if value is not None}
