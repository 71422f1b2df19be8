"""The scan of a pipeline: it is planned as a server does, and each sample is read and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, SampleError
from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.check.measures import Measures
from infeed_server.check.report import SOURCE_STAGE, PipelineReport
from infeed_server.check.rules import value_findings
from infeed_server.config.document import Problem
from infeed_server.engines.dataset_options import graph_options
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import FilePipelines, error_path
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.sources import DatasetSource, ProgressCallback, open_source

_TOGETHER = 64
"""Samples read and measured at a time: few enough for memory, enough to hide latency."""

Advance = Callable[[int], None]
"""Callback with the number of samples that were processed since the last call."""

Opening = Callable[[str], AbstractContextManager[ProgressCallback]]
"""Returns a context in which the files of the named pipeline are indexed."""

Scanning = Callable[[str, int], AbstractContextManager[Advance]]
"""Returns a context in which so many samples of a pipeline are read."""


def scan_pipeline(
    pipelines: FilePipelines,
    name: str,
    opening: Opening,
    scanning: Scanning,
    *,
    limit: int | None,
    max_examples: int,
) -> tuple[PipelineReport, list[Problem]]:
    """Scans a pipeline; returns the report, and the problems besides bad samples.

    `limit` is the maximum number of samples, `max_examples` of bad ones with their errors.
    """
    definition, doc = pipelines[name], pipelines.document
    if isinstance(definition.source, DatasetSource):  # it has no samples by number
        return PipelineReport(name), []
    try:
        keep_damaged = definition.on_error != "raise"
        with opening(name) as on_open:
            source = open_source(definition.source, on_open, keep_damaged=keep_damaged)
        with closing(source):
            plan = plan_indexed(name, definition, source, cached=False)
            count = min(len(source), limit or len(source))
            with closing(plan.source), scanning(name, count) as advance:
                report = _scan_indexed(plan, count, max_examples, advance)
    except InfeedError as error:
        path, message = error_path(error, name)
        return PipelineReport(name), [doc.problem(path, message)]
    findings = value_findings(definition.transforms, report.ranges)
    return report, [doc.problem(("pipelines", name, *path), text) for path, text in findings]


def _scan_indexed(
    plan: IndexedPlan, count: int, max_examples: int, advance: Advance
) -> PipelineReport:
    """Scans the first `count` samples, as the first epoch with the pipeline's seed has them.

    Raises `ConfigError` and `UserCodeError` like the plan, and `SourceError` for a fault of
    storage.
    """
    source, _ = plan.uncached
    maps, steps = split_python_maps(list(enumerate(plan.definition.transforms)))
    reader = SampleReader(source, steps, plan.order(plan.spec.seed))
    measures = Measures(dict(source.columns), source.parse, steps)
    report = PipelineReport(plan.spec.name, len(source), count)
    report.ranges, report.classes = measures.ranges, measures.classes
    report.stages |= {number: f"{number}: {transform.name}" for number, transform in steps}
    if maps:
        report.stages[SOURCE_STAGE] = f"{maps[-1][0]}: map"
    if "label" in report.classes:
        report.classes["label"].names = getattr(source, "class_names", ())
    faults: list[Exception] = []

    def groups() -> Iterator[tuple[Any, ...]]:
        try:
            for start in range(0, count, _TOGETHER):
                index, columns = reader.read(np.arange(start, min(start + _TOGETHER, count)))
                if len(index):
                    yield index, reader.keys(index), columns
        except Exception as error:  # noqa: BLE001 - TensorFlow would keep its message only
            faults.append(error)

    made = groups()
    columns = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype)
        for name, spec in source.columns.items()
    }
    index, key = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2], tf.int64)
    rows = from_callable(lambda _: next(made, None), (index, key, columns)).prefetch(2).unbatch()
    bad = np.ones(count, np.bool_)
    for index, values, classes in _measured(rows, measures):
        bad[np.asarray(index)] = False
        report.add(np.asarray(values), classes)
        advance(len(values))
    if faults:
        raise faults[0]
    report.bad_samples = int(bad.sum())
    for number in np.flatnonzero(bad)[:max_examples].tolist():
        failure = reader.failure(number)
        again = SampleError(f"sample {number} failed, but not alone", sample_id=number)
        report.bad_examples.append(
            reader.unread.get(number) or (failure.error if failure else again)
        )
    advance(report.bad_samples)
    return report


def _measured(rows: tf.data.Dataset, measures: Measures) -> tf.data.Dataset:
    """Returns the index, the measures and the class fields of rows, some at a time.

    A row whose transforms fail is left out.
    """

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def measure(
        index: tf.Tensor, key: tf.Tensor, columns: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        return index, *measures.compute(columns, key)

    measured = rows.map(measure, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    return measured.batch(_TOGETHER).with_options(graph_options())
