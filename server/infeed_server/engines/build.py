"""From a definition to an engine that serves it."""

from __future__ import annotations

from infeed_server.cluster.service import Service
from infeed_server.engines.base import Engine
from infeed_server.engines.budget import Budget, default_limit
from infeed_server.engines.indexed import IndexedEngine
from infeed_server.engines.local import LocalDataset
from infeed_server.engines.monitor import Monitor
from infeed_server.engines.quarantine import Quarantine
from infeed_server.engines.remote import ServiceDataset
from infeed_server.engines.sequential import SequentialEngine
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.plan import plan_indexed
from infeed_server.pipeline.sequential import plan_sequential
from infeed_server.pipeline.spread import plan_spread
from infeed_server.sources import DatasetSource, Progress, open_source


def build(
    name: str,
    definition: Pipeline,
    monitor: Monitor,
    progress: Progress | None = None,
    budget: Budget | None = None,
    service: Service | None = None,
) -> Engine:
    """Opens the source, plans the pipeline and makes its engine.

    `budget` is shared with the other pipelines of a server; without one the engine has its own.
    With a `service`, its workers make the batches.

    Raises `SourceError`, `ConfigError` or `UserCodeError`; a message about the definition begins
    with the place in it, as in `transforms[1].resize: ...`.
    """
    budget = budget or Budget(default_limit())
    if service is not None:
        remote = ServiceDataset(plan_spread(name, definition, progress=progress), service)
        remote.prepare()
        return SequentialEngine(remote, budget)
    if isinstance(definition.source, DatasetSource):
        dataset = LocalDataset(plan_sequential(name, definition, definition.source))
        return SequentialEngine(dataset, budget)
    # A file that ends inside a record is a mistake to be told at once, unless bad samples are
    # to be lived with.
    keep_truncated = definition.on_error != "raise"
    source = open_source(definition.source, progress, keep_truncated=keep_truncated)
    plan = plan_indexed(name, definition, source)
    file = definition.quarantine or f"quarantine/{name}.jsonl"
    return IndexedEngine(plan, Quarantine(file, name, definition.on_error), monitor, budget)
