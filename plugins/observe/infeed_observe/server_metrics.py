"""Metrics of a server that are read at every scrape, each by a call of `expose`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infeed_observe.desired_servers import DESIRED_SERVERS
from infeed_observe.observer import QUEUES, Observer, queues
from infeed_server.engines.figures import Figures
from infeed_server.engines.monitor import LabelledValues
from infeed_server.runtime.certificate import tls_files
from infeed_server.storage.stores import traffic

_LIMIT = "Memory of the host, or the container's limit."
_READY = "Whether the pipeline is ready: 1, or 0, for the reason given by /readyz."
_EXPIRY = "Unix time at which the certificate of --tls-cert expires."
_WAIT = "Share of the last seconds that the slowest-fed rank spent waiting, 0 to 1."
_STATE = (
    "Seconds of waiting for a request, room in a stream (no_budget), the source, the transforms, "
    "or the repair of bad samples."
)
_ORIGIN = "Samples of started requests, by origin: computed, shared or recomputed."
_CACHE = "Samples looked up in the cache, by result: hits or misses."
_PICTURES = "Pictures decoded for batches, by decoder: native or tensorflow."
_REQUESTS = "Requests for objects' bytes from stores, without obstore's own retries."
_RECEIVED = "Bytes of objects received from stores."


def expose_server(observer: Observer) -> None:
    """Exposes the values of an observer and its facts."""
    facts, status, reports = observer.facts, observer.status, observer.reports
    budget, tls = facts.budget, tls_files(facts.options)

    def one(name: str, text: str, read: Callable[[], float | None]) -> None:
        observer.metrics.expose(f"infeed_{name}", text, lambda: _known({(): read()}))

    def each(name: str, text: str, read: Callable[[], Mapping[str, float | None]]) -> None:
        def values() -> LabelledValues:
            return _known({(pipeline,): value for pipeline, value in read().items()})

        observer.metrics.expose(f"infeed_{name}", text, values, "pipeline")

    def figures(
        name: str, text: str, label: str, read: Callable[[Figures], Mapping[Any, float]]
    ) -> None:
        def values() -> LabelledValues:
            return {
                (pipeline, key): value
                for pipeline, engine in observer.engines().items()
                for key, value in read(engine.figures()).items()
            }

        observer.metrics.expose(f"infeed_{name}", text, values, "pipeline", label)

    def held(queue: str) -> Callable[[], dict[str, float]]:
        return lambda: {name: queues(one)[queue] for name, one in observer.engines().items()}

    def pipelines(attribute: str) -> dict[str, float | None]:
        return {name: getattr(one, attribute) for name, one in status.pipelines.items()}

    for queue, text in QUEUES.items():
        each(queue, text, held(queue))
    one("memory_limit_bytes", _LIMIT, lambda: reports.process.memory_limit_bytes)
    one("shared_memory_bytes", "Memory shared with trainers on this host.", lambda: budget.reserved)
    one("unsent_limit_bytes", "Limit on the unsent bytes of all pipelines.", lambda: budget.limit)
    health = facts.health
    each("pipeline_ready", _READY, lambda: {n: part.ready for n, part in health.parts.items()})
    one("certificate_expiry_timestamp_seconds", _EXPIRY, lambda: tls.expires_at() if tls else None)
    each("trainers", "Connected trainers.", lambda: pipelines("trainers"))
    each("wait_ratio", _WAIT, lambda: pipelines("worst_wait"))
    observer.metrics.expose(*DESIRED_SERVERS, lambda: {(): status.desired_servers})
    figures("pipeline_state_seconds_total", _STATE, "state", lambda made: made.state_seconds)
    figures("requested_samples_total", _ORIGIN, "origin", lambda made: _counts(made, cache=False))
    figures("cache_reads_total", _CACHE, "result", lambda made: _counts(made, cache=True))
    figures("pictures_total", _PICTURES, "decoder", lambda made: made.pictures)
    one("store_requests_total", _REQUESTS, lambda: traffic()[0])
    one("store_received_bytes_total", _RECEIVED, lambda: traffic()[1])


def _known(values: Mapping[tuple[str, ...], float | None]) -> LabelledValues:
    return {labels: value for labels, value in values.items() if value is not None}


def _counts(figures: Figures, *, cache: bool) -> dict[str, float]:
    """Returns the cache's counts by result, or the other counts by origin."""
    return {
        count.removeprefix("cache_").removesuffix("_samples"): value
        for count, value in figures.sample_counts.items()
        if count.startswith("cache_") == cache
    }
