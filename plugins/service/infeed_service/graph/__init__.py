"""Pipelines as graphs of TensorFlow operations, for the workers of the tf.data service."""

from __future__ import annotations

from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources.base import ProgressCallback
from infeed_service.graph.elements import plan_elements
from infeed_service.graph.plan import DataServicePlan, Variant
from infeed_service.graph.samples import plan_samples
from infeed_service.graph.unsupported import LIMIT_BYTES, refuse_local_orders, refuse_python
from infeed_service.sequential.plan import plan_sequential
from infeed_service.sequential.source import DatasetSource

__all__ = ["DataServicePlan", "Variant", "plan_data_service"]


def plan_data_service(
    name: str,
    definition: Pipeline,
    limit_bytes: int = LIMIT_BYTES,
    progress: ProgressCallback | None = None,
) -> DataServicePlan:
    """Plans a pipeline for the tf.data service; `progress` is called while files are indexed.

    Raises the errors of planning for the local engine, and `ConfigError` for what workers cannot
    run: Python functions, and data that takes more than `limit_bytes` in the graph.
    """
    if isinstance(definition.source, DatasetSource):
        return plan_elements(plan_sequential(name, definition))
    refuse_python(definition)
    refuse_local_orders(definition)
    return plan_samples(name, definition, definition.open(progress), limit_bytes)
