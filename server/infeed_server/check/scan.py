"""The scan of a pipeline: it is planned as a server does, and all of its samples are read."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import numpy as np
import tensorflow as tf

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.check.indexed_scan import Advance, IndexedScan
from infeed_server.check.measures import Measures
from infeed_server.check.report import PipelineReport
from infeed_server.check.rules import value_findings
from infeed_server.config.document import Problem
from infeed_server.engines.dataset_options import graph_options
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import FilePipelines, error_path
from infeed_server.pipeline.sequential_plan import SequentialPlan, plan_sequential
from infeed_server.sources import DatasetSource, ProgressCallback, open_source
from infeed_server.sources.base import Sample

_TOGETHER = 64
"""Samples of a dataset that are measured at a time: fewer cost more calls, more are seen later."""


class Progress(Protocol):
    """Shows the progress of one pipeline after the other."""

    def opening(self, name: str) -> AbstractContextManager[ProgressCallback]:
        """Returns a context in which the pipeline's files are indexed."""

    def scanning(self, name: str, samples: int | None) -> AbstractContextManager[Advance]:
        """Returns a context in which so many samples are read; None: an unknown number."""


def scan_pipeline(
    pipelines: FilePipelines,
    name: str,
    *,
    limit: int | None,
    max_examples: int,
    progress: Progress,
) -> tuple[PipelineReport, list[Problem]]:
    """Scans a pipeline; returns the report, and the problems besides bad samples.

    `limit` is the maximum number of samples, `max_examples` of bad ones with their errors.
    """
    definition = pipelines[name]
    doc = pipelines.document
    try:
        report = _scan(name, definition, limit, max_examples, progress)
    except InfeedError as error:
        path, message = error_path(error, name)
        return PipelineReport(name), [doc.problem(path, message)]
    findings = value_findings(definition.transforms, report.ranges)
    return report, [doc.problem(("pipelines", name, *path), text) for path, text in findings]


def _scan(
    name: str, definition: Pipeline, limit: int | None, max_examples: int, progress: Progress
) -> PipelineReport:
    if isinstance(definition.source, DatasetSource):
        plan = plan_sequential(name, definition, definition.source)
        with progress.scanning(name, limit or plan.spec.sample_count) as advance:
            return _scan_dataset(plan, definition, limit, advance)
    keep_damaged = definition.on_error != "raise"
    with progress.opening(name) as on_open:
        source = open_source(definition.source, on_open, keep_damaged=keep_damaged)
    with ExitStack() as stack:
        stack.callback(source.close)
        indexed = plan_indexed(name, definition, source, cached=False)
        stack.callback(indexed.source.close)
        count = min(len(source), limit or len(source))
        scan = IndexedScan(indexed, count, max_examples)
        with progress.scanning(name, count) as advance:
            return scan.run(advance)


def _scan_dataset(
    plan: SequentialPlan, definition: Pipeline, limit: int | None, advance: Advance
) -> PipelineReport:
    """Reads a dataset once from its beginning, and measures its fields.

    Raises `UserCodeError` where the dataset fails, and `ConfigError` for an endless one without a
    limit.
    """
    spec = plan.spec
    dataset = plan.dataset(spec.seed, spec.batch_size)
    if limit is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ConfigError("source.dataset: the dataset is endless; give --limit")
    # Of a dataset of batches, the number of batches is known, but not of samples.
    report = PipelineReport(spec.name, None if plan.batched else spec.sample_count)
    samples = dataset.unbatch()
    steps = list(enumerate(definition.transforms))
    measures = Measures.of(dict(samples.element_spec), lambda sample: sample, steps)
    report.measure(measures, steps)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def measure(sample: Sample) -> tuple[tf.Tensor, Sample]:
        return measures.compute(sample, tf.zeros([2], tf.int64))

    if limit is not None:
        samples = samples.take(limit)
    measured = samples.map(measure, num_parallel_calls=tf.data.AUTOTUNE).batch(_TOGETHER)
    try:
        for values, classes in measured.with_options(graph_options()):
            report.add(np.asarray(values), classes)
            report.scanned += len(values)
            advance(len(values))
    except tf.errors.OpError as error:
        raise plan.explain(error) or error from error
    return report
