"""From a definition to an engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infeed.errors import InfeedError
from infeed_server.engines.base import Engine
from infeed_server.engines.indexed import IndexedEngine
from infeed_server.engines.monitor import Monitor
from infeed_server.engines.quarantine import Quarantine
from infeed_server.engines.sequential import SequentialEngine
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.plan import plan_indexed
from infeed_server.pipeline.sequential import plan_sequential
from infeed_server.sources import DatasetSource, Progress, open_source


@contextmanager
def named(name: str) -> Iterator[None]:
    """Puts the pipeline's name before the message of every error."""
    try:
        yield
    except InfeedError as error:
        error.message = f"pipelines.{name}: {error.message}"
        error.args = (error.message,)
        raise


def build(
    name: str, definition: Pipeline, monitor: Monitor, progress: Progress | None = None
) -> Engine:
    """Opens the source, plans the pipeline and makes its engine.

    Raises `SourceError`, `ConfigError` or `UserCodeError`, each naming the pipeline.
    """
    if isinstance(definition.source, DatasetSource):
        with named(name):
            return SequentialEngine(plan_sequential(name, definition, definition.source))
    with named(name):
        source = open_source(
            definition.source, progress, keep_truncated=definition.on_error != "raise"
        )
        plan = plan_indexed(name, definition, source)
    file = definition.quarantine or f"quarantine/{name}.jsonl"
    return IndexedEngine(plan, Quarantine(file, name, definition.on_error), monitor)
