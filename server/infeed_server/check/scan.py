"""The scan of a pipeline: it is planned as a server does, and all of its samples are read."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from infeed.shared.errors import InfeedError
from infeed_server.check.dataset_scan import scan_dataset
from infeed_server.check.indexed_scan import Advance, IndexedScan
from infeed_server.check.report import PipelineReport
from infeed_server.check.rules import value_findings
from infeed_server.config.document import Problem
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import FilePipelines, error_path
from infeed_server.pipeline.sequential_plan import plan_sequential
from infeed_server.sources import DatasetSource, ProgressCallback, open_source


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

    `limit` is the maximum number of samples, `max_examples` that of bad ones with their errors.
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
            return scan_dataset(plan, limit, advance)
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
