"""From a definition to its spread plan, whatever its source is."""

from __future__ import annotations

from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.sequential import plan_sequential
from infeed_server.pipeline.spread.elements import spread_elements
from infeed_server.pipeline.spread.plan import SpreadPlan
from infeed_server.pipeline.spread.refusals import LIMIT_BYTES
from infeed_server.pipeline.spread.samples import spread_samples
from infeed_server.sources import DatasetSource, Progress, open_source


def plan_spread(
    name: str,
    definition: Pipeline,
    limit_bytes: int = LIMIT_BYTES,
    progress: Progress | None = None,
) -> SpreadPlan:
    """Plans a pipeline for the tf.data service; `progress` is told how far a scan of files is.

    Raises what planning for the local engine does, and `ConfigError` for what cannot run on the
    workers: Python functions, and data that would take more than `limit_bytes` in the graph.
    """
    if isinstance(definition.source, DatasetSource):
        plan = plan_sequential(name, definition, definition.source)
        return spread_elements(plan, limit_bytes)
    keep_truncated = definition.on_error != "raise"
    source = open_source(definition.source, progress, keep_truncated=keep_truncated)
    return spread_samples(name, definition, source, limit_bytes)
