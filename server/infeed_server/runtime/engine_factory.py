"""The factory of local engines."""

from __future__ import annotations

import logging

from infeed.shared.errors import InfeedError
from infeed_server.config.user_errors import user_errors
from infeed_server.engines.base import Engine
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.runtime.engines import engine_of
from infeed_server.sources.base import IndexedDefinition, ProgressCallback

_log = logging.getLogger(__name__)


def build(
    name: str,
    definition: Pipeline,
    monitor: Monitor,
    progress: ProgressCallback | None = None,
    budget: MemoryBudget | None = None,
    decoder: str = "auto",
) -> Engine:
    """Opens the source, plans the pipeline and returns its engine.

    A server's pipelines share a `budget`; without one, the engine has its own.

    Raises `SourceError`, `ConfigError` or `UserCodeError`; a message about the definition begins
    with a path into it, such as `transforms[1].resize: ...`.
    """
    budget = budget or MemoryBudget(default_limit())
    if not isinstance(definition.source, IndexedDefinition):
        make = engine_of(definition.source.engine)
        passed = InfeedError, KeyboardInterrupt, SystemExit  # the last two by a signal
        with user_errors(f"the engine of {name!r}", *passed):
            return make(name, definition, budget)
    source = definition.open(progress)
    try:
        plan = plan_indexed(name, definition, source, decoder=decoder)
    except BaseException:  # also a signal
        source.close()
        raise
    if source.advice and definition.shuffle.mode == "global":
        _log.warning("%s: %s", name, source.advice)
    file = definition.quarantine or f"quarantine/{name}.jsonl"
    return IndexedEngine(plan, Quarantine(file, name, definition.on_error), monitor, budget)
