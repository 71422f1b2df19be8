"""The first batch of a pipeline, made by a server's engine: what fails here would not be served."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import NamedTuple

from infeed.shared.errors import ConfigError, InfeedError, SourceError
from infeed_python.daemon_executor import DaemonExecutor
from infeed_server.config.document import Problem
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.load import FilePipelines, place_of
from infeed_server.runtime.engine_factory import build
from infeed_server.sources.base import IndexedDefinition, ProgressCallback
from infeed_tools.check.rules import unit_findings
from infeed_tools.check.scan import scan_samples

_LOOKED_AT = 64
"""Samples whose targets are checked."""

DATASET_TIMEOUT_SECONDS = 60.0
"""Time for the first batch of a dataset, because TensorFlow waits forever for a tf.data service
that is down. A dataset that takes longer is reported as a problem."""


class FirstBatch(NamedTuple):
    """What a server or trainer would refuse, the class names of fields, and the decoder of
    pictures."""

    problem: Problem | None = None
    classes: Mapping[str, Sequence[str]] = {}
    decoder: str = ""


def make_first_batch(
    pipelines: FilePipelines, name: str, progress: ProgressCallback, *, with_bad_samples: bool
) -> FirstBatch:
    """Opens a pipeline and makes its first batch. Unless `with_bad_samples`, ignores a sample that
    cannot be read or transformed: a scan reports it."""
    try:
        if not isinstance(pipelines[name].source, IndexedDefinition):
            return _make_within_timeout(name, pipelines[name], progress)
        return _make(name, pipelines[name], progress)
    except InfeedError as error:
        is_bad_sample = "sample_id" in error.metadata
        if is_bad_sample and not with_bad_samples:
            return FirstBatch()
        message = error.problem + "; --scan lists every bad sample" * is_bad_sample
        return FirstBatch(pipelines.document.problem(place_of(error, name), message))


def _make(name: str, definition: Pipeline, progress: ProgressCallback) -> FirstBatch:
    # A check must not leave a log behind.
    definition = definition.model_copy(update={"quarantine": os.devnull})
    engine = build(name, definition, Monitor(), progress)
    try:
        engine.warm_up()
        made = FirstBatch(classes=engine.spec.classes, decoder=engine.figures().decoder)
        if definition.targets and isinstance(engine, IndexedEngine):
            _check_units(definition, engine.plan)
        return made
    finally:
        engine.close()


def _check_units(definition: Pipeline, plan: IndexedPlan) -> None:
    """Raises `ConfigError` if the first samples of a target have other units than declared."""
    count = min(_LOOKED_AT, len(plan.source) - len(plan.removed))
    report = scan_samples(plan, count, 0, lambda _: None)
    for path, problem in unit_findings(definition, report.ranges):
        raise ConfigError(problem, at=path)


def _make_within_timeout(name: str, definition: Pipeline, progress: ProgressCallback) -> FirstBatch:
    executor = DaemonExecutor("infeed-first-batch")
    made = executor.submit(_make, name, definition, progress)
    executor.close()
    try:
        made.exception(DATASET_TIMEOUT_SECONDS)
    except FutureTimeoutError:
        raise SourceError(
            f"no first batch within {DATASET_TIMEOUT_SECONDS:g} seconds; check that its files and "
            "its tf.data service can be reached",
            at=("source", definition.source.kind),
        ) from None
    return made.result()
