"""Factory of the engine for a pipeline over a dataset; the entry point names it."""

from __future__ import annotations

from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.pipeline.definition import Pipeline
from infeed_service.sequential.engine import SequentialEngine
from infeed_service.sequential.local_backend import LocalBackend
from infeed_service.sequential.plan import plan_sequential


def build(name: str, definition: Pipeline, budget: MemoryBudget) -> SequentialEngine:
    """Plans a pipeline and returns its engine. Raises `ConfigError` and `UserCodeError`."""
    return SequentialEngine(LocalBackend(plan_sequential(name, definition)), budget)
